"""Is a host fit: every point of a look, on a real (pretend) host and in what others would show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from configs.read import to_yaml
from flows.doctor import look_over
from tasks.host_checks import judge_host, worst
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweeping import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("doctor")) as made:
        yield made


def host_file(ground: Ground, **changed: Any) -> str:
    return str(ground.host_file(**changed))


def test_a_fit_host_is_fit_and_nothing_stays_there(ground: Ground) -> None:
    asked = sweeping.sweep("looked", arms="base+tuned")
    looked = look_over(host_file(ground), asked)
    found = {check.name: check for check in looked.checks}
    assert looked.level != "fail", looked.lines()
    assert found["gpus"].text.startswith("8 of 8 GPUs free")
    assert "sglang 0.5.9" in found["engine"].text
    assert {c.text.split(":")[0] for c in looked.checks if c.name == "model"} == {
        "shared/kimi-k2.5-int4",
        "data/eagle3/k25-tuned",
    }
    assert list((ground.root / "trials").iterdir()) == []


def test_what_is_missing_is_named(ground: Ground) -> None:
    asked = sweeping.sweep("looked", arms="base+custom").model_copy(
        update={"engine": sweeping.sweep().engine.model_copy(update={"model": "no/such"})}
    )
    looked = look_over(host_file(ground, python="no-such-python", gpus=9), asked)
    failed = {check.name: check.text for check in looked.checks if check.level == "fail"}
    assert failed["gpus"].startswith("too_few_gpus: 8 GPUs seen, 9 wanted")
    assert failed["engine"].startswith("no-such-python: not_found")
    assert failed["model"].startswith("no/such: no such folder on the host")


def test_a_host_that_is_in_use_is_left_alone(ground: Ground) -> None:
    from infra.connect import connect

    agent = connect(ground.host)
    try:
        agent.call("claim", root=agent.root, holder="night-0001", lease_s=30, note="b01-base")
        looked = look_over(host_file(ground))
        assert [check.name for check in looked.checks] == ["contact", "claim"]
        assert "in use by night-0001 (b01-base)" in looked.checks[1].text
        assert looked.level == "ok"
        agent.call("release", root=agent.root, holder="night-0001")
        assert agent.call("held", root=agent.root)["held"] is False
    finally:
        agent.close()


def test_the_command_says_it_line_by_line_and_by_its_exit_code(ground: Ground) -> None:
    good = host_file(ground)
    with ground.command("doctor", good) as command:
        assert command.ended() == 0, command.text
        assert "gpus: 8 of 8 GPUs free" in command.text
    bad = ground.place / "bad.yaml"
    bad.write_text(to_yaml(ground.host.model_copy(update={"name": "bad", "gpus": 9})), "utf-8")
    with ground.command("doctor", good, str(bad)) as command:
        assert command.ended() == 1
        assert "fail    gpus: too_few_gpus" in command.text


def facts(**changed: Any) -> dict[str, Any]:
    row = "0, GPU-1, H200, 580.1, 4, 1000, 0, 70, 300, 1980, 30, 0x1"
    said = {
        "gpus": {"stdout": row, "stderr": "", "exit": 0},
        "apps": {"stdout": "", "stderr": "", "exit": 0},
    }
    python = {"packages": {"sglang": "0.5.9", "vllm": None, "torch": "2.9.1"}, "error": None}
    return {
        "nvidia_smi": said,
        "engine_pythons": {"python": python},
        "paths": {"/f": {"disk_free_bytes": 500_000_000_000}},
        "host": {"shm_free_bytes": 8_000_000_000},
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"paths": {"/f": {"disk_free_bytes": 10}}}, "fail", "0 GB free at /f"),
        ({"paths": {"/f": {"disk_free_bytes": 5_000_000_000}}}, "warning", "5 GB free"),
        ({"paths": {"/f": {"disk_free_bytes": None}}}, "warning", "not known"),
        ({"host": {"shm_free_bytes": 64_000_000}}, "warning", "0.1 GB free in /dev/shm"),
        (
            {"engine_pythons": {"p": {"packages": {"torch": "2"}, "error": None}}},
            "fail",
            "p: neither of sglang, vllm is installed in it",
        ),
    ],
)
def test_every_point_is_judged(ground: Ground, changed: Any, level: str, said: str) -> None:
    host = ground.host.model_copy(update={"gpus": 1})
    checks = judge_host(host, facts(**changed), {"folder": "/f"})
    assert worst(checks) == level
    assert any(said in check.text for check in checks if check.level == level), checks
