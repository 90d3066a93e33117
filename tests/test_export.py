"""An exported setting starts what the trial started, says why, and shows no secret."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.problems import ConfigError
from configs.read import parse_sweep, to_yaml
from flows.exporting import export
from tasks.check_table import GUARDS
from tasks.export_choice import choose
from tasks.export_evidence import evidence_lines
from tasks.export_plan import deployment
from tasks.export_shell import comments, docker_script, launch_script
from tasks.export_unit import unit_file, word
from tasks.k_by_batch import k_by_batch, table_lines
from tasks.publish import published_link
from tasks.reporting import compare_sweep
from tests import builders, rehearsing, sweeping
from tests.sweeps import host, sweep
from tests.wheels import file_in_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from tasks.export_plan import Deployment
    from tests.sweeping import Ground

BASE = {1: 60.0, 8: 40.0, 64: 20.0}
EVIL = '/models/k 25\'s $(touch x) "%h" \\'


def asked(*changes: tuple[str, str]) -> Sweep:
    """Two chains of one drafter, and no speculation; no factors."""
    text = "    speculation:\n      kind: eagle3\n      drafter: /models/b\n"
    chain = "    speculation: {kind: eagle3, drafter: /models/a, num_steps: 5, topk: 1, draft_tokens: 6}\n"
    nccl = "factors:\n  nccl:\n    default: {}\n    ll: {env: {NCCL_PROTO: LL}}\n"
    return sweep((text, chain), (nccl, ""), ("[1, 8]", "[1, 8, 64]"), *changes)


def records(question: Sweep, factors: dict[str, dict[int, float]], **fields: Any) -> list[Any]:
    """Three blocks without noise to speak of: each arm as a factor on the baseline's speed."""
    values: dict[str, Any] = {"versions": {"sglang": "0.5.20"}, "rehearsal": True, **fields}
    found = []
    for arm in question.arms:
        ladder = factors.get(arm, dict.fromkeys(BASE, 1.0))
        blocks = {
            b: {c: BASE[c] * ladder[c] * (1 + 0.0004 * b * (1 + len(arm))) for c in BASE}
            for b in (1, 2, 3)
        }
        found += builders.speeds(arm, blocks, 1.0 if arm == "base" else 2.5, **values)
    return found


WINS = {"a": {1: 1.3, 8: 1.2, 64: 0.9}, "b": {1: 1.5, 8: 1.1, 64: 0.8}}


def exported(question: Sweep, trials: list[Any], arm: str | None = None, **on: Any) -> Deployment:
    chosen = choose(question, compare_sweep(question, trials), trials, arm)
    assert chosen is not None
    return deployment(question, host(**on), chosen)


def test_the_setting_that_the_verdict_names_is_chosen() -> None:
    question = asked()
    trials = records(question, WINS)
    comparison = compare_sweep(question, trials)
    chosen = choose(question, comparison, trials)
    assert chosen is not None
    assert chosen.won
    assert chosen.arm == "b"
    text = "\n".join(
        evidence_lines(
            question,
            comparison,
            chosen,
            deployment(question, host(), chosen),
            folder="/runs/1",
            link="http://127.0.0.1:5000/#/runs/abc",
            table=[],
        )
    )
    assert "REHEARSAL: no claim about any GPU" in text
    assert "This is the setting that the verdict names." in text
    assert "load, 1 user: +50 % [" in text
    assert "/runs/1" in text
    assert "#/runs/abc" in text
    assert "Engine: sglang 0.5.20 (" in text


def test_nothing_is_chosen_where_nothing_won_unless_it_is_named() -> None:
    question = asked()
    slow = {arm: dict.fromkeys(BASE, 0.8) for arm in ("a", "b")}
    trials = records(question, slow)
    comparison = compare_sweep(question, trials)
    assert choose(question, comparison, trials) is None
    chosen = choose(question, comparison, trials, "base")
    assert chosen is not None
    assert not chosen.won


@pytest.mark.parametrize(
    ("arm", "levels", "said"),
    [
        ("c", {}, "no arm is called 'c': base, a, b"),
        ("a", {"nccl": "ll"}, "there is no nccl=ll"),
        ("b", {}, "b has no ok trial (b01-b failed"),
    ],
)
def test_what_cannot_be_exported_is_told(arm: str, levels: dict[str, str], said: str) -> None:
    question = asked()
    trials = [
        r.model_copy(update={"status": "failed"}) if r.arm == "b" else r
        for r in records(question, WINS)
    ]
    with pytest.raises(ConfigError) as error:
        choose(question, compare_sweep(question, trials), trials, arm, levels)
    assert said in str(error.value)


def recorder(place: Path, name: str) -> Path:
    """A program that writes its words and its environment into a file, and ends."""
    path = place / name
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv[1:], dict(os.environ)], open({str(place / 'seen.json')!r}, 'w'))\n"
    )
    path.chmod(0o700)
    return path


def run(script: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{script.parent}:/usr/bin:/bin"
    return subprocess.run(
        ["bash", str(script)],
        env={"PATH": path, "HOME": str(script.parent), **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def hostile(place: Path) -> Deployment:
    """A setting whose words would do harm in a careless script, with a key and a secret."""
    python = str(recorder(place, "my python"))
    command = [python, "-m", "sglang.launch_server", "--model-path", EVIL, "--port", "31234"]
    command += ["--json-model-override-args", '{"a": "b\'c"}', "--api-key", "***"]
    env = {"NCCL_PROTO": "LL", "ODD": 'a "b" $HOME %n\\', "HF_TOKEN": "***"}
    question = asked(("model: /models/target", f"model: {json.dumps(EVIL)}"))
    trials = records(question, WINS, command=tuple(command), environment=env)
    return exported(question, trials, env_from=["HF_TOKEN"], api_key_from="MY_KEY")


def test_the_launch_script_starts_the_very_words_of_the_trial(tmp_path: Path) -> None:
    plan = hostile(tmp_path)
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(plan, ["one\nrm -rf / \\", "$(touch pwned) `x`"]))
    assert "***" not in script.read_text()
    missing = run(script)
    assert missing.returncode != 0
    assert "HF_TOKEN" in missing.stderr
    done = run(script, HF_TOKEN="t0p s3cret", MY_KEY="k$y", PORT="4444", CUDA_VISIBLE_DEVICES="7")
    assert done.returncode == 0, done.stderr
    words, env = json.loads((tmp_path / "seen.json").read_text())
    assert words == [
        *("-m", "sglang.launch_server", "--model-path", EVIL, "--port", "4444"),
        *("--json-model-override-args", '{"a": "b\'c"}', "--api-key", "k$y"),
    ]
    assert env["ODD"] == 'a "b" $HOME %n\\'
    assert env["NCCL_PROTO"] == "LL"
    assert env["HF_TOKEN"] == "t0p s3cret"
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert not list(tmp_path.glob("pwned"))


def test_the_docker_line_carries_words_folders_and_secrets_by_name(tmp_path: Path) -> None:
    plan = hostile(tmp_path)
    recorder(tmp_path, "docker")
    script = tmp_path / "docker-run.sh"
    script.write_text(docker_script(plan, []))
    done = run(script, HF_TOKEN="t0p s3cret", MY_KEY="k$y")
    assert done.returncode == 0, done.stderr
    words, env = json.loads((tmp_path / "seen.json").read_text())
    assert words[0] == "run"
    assert "lmsysorg/sglang:v0.5.20" in words
    assert words[-8:-4] == ["--model-path", EVIL, "--port", "30000"]
    assert words[-2:] == ["--api-key", "k$y"]
    assert "HF_TOKEN" in words
    assert "t0p s3cret" not in words
    assert env["HF_TOKEN"] == "t0p s3cret"
    assert f"type=bind,src={EVIL},dst={EVIL},readonly" in words
    assert "type=bind,src=/models/a,dst=/models/a,readonly" in words


@cache
def winner() -> Deployment:
    question = asked()
    return exported(question, records(question, WINS))


_WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6
)


@given(_WORDS)
@settings(max_examples=40)
def test_any_word_reaches_the_engine_as_it_is(words: list[str]) -> None:
    """printf in the place of the engine, under a real bash."""
    plan = winner()._replace(python="/usr/bin/printf", words=("%s\\0", *words), cwd="/")
    done = subprocess.run(
        ["bash", "-s"],
        input=launch_script(plan, words).encode(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert done.stdout.decode() == "".join(f"{word}\0" for word in words) or (
        not words and done.stdout == b"\0"  # printf without words prints its form once
    )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    for name, text in {
        "launch.sh": launch_script(hostile(tmp_path), ["x"]),
        "docker-run.sh": docker_script(hostile(tmp_path), ["x"]),
    }.items():
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["shellcheck", "--severity=warning", str(tmp_path / name)],
            check=False,
            capture_output=True,
            timeout=60,
        )
        assert done.stdout.decode() == ""


def test_a_masked_value_that_is_no_known_secret_is_refused() -> None:
    question = asked()
    trials = records(question, WINS, environment={"URL": "https://me:***@x"})
    with pytest.raises(ConfigError) as error:
        exported(question, trials)
    assert "URL: holds a secret that is not known by name" in str(error.value)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "eagle3.service"
    unit.write_text(unit_file(hostile(tmp_path), ["a line\nExecStart=/bin/false \\"]))
    text = unit.read_text()
    assert "EnvironmentFile=/etc/eagle3-sweep/b.env" in text
    assert "--api-key ${MY_KEY}" in text
    assert text.count("ExecStart=/bin/false") == 1  # inside the comment
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-word=1", "plain-word=1"),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
        ('a "b"\\', '"a \\"b\\"\\\\"'),
        ("two\nlines", '"two\\nlines"'),
        ("", '""'),
    ],
)
def test_a_word_of_a_unit_is_escaped_as_systemd_reads_it(text: str, shown: str) -> None:
    assert word(text) == shown


@given(st.text())
def test_no_text_leaves_its_comment(text: str) -> None:
    (line,) = comments([text])
    assert line.startswith("#")
    assert len(line.splitlines()) == 1
    assert not line.endswith("\\")


def test_several_nodes_are_not_started_by_one_script() -> None:
    question = asked()
    command = ("/p", "-m", "sglang.launch_server", "--port", "1", "--nnodes", "2")
    with pytest.raises(ConfigError) as error:
        exported(question, records(question, WINS, command=command))
    assert "ran on 2 nodes together" in str(error.value)


def test_a_tag_is_a_release_without_its_build() -> None:
    assert "lmsysorg/sglang:v0.5.12.post1}" in docker_script(
        winner()._replace(version="0.5.12.post1+cu130"), []
    )


def test_the_development_mode_of_vllm_is_left_out() -> None:
    changes = [("kind: sglang", "kind: vllm"), ("tp-size: 8", "tensor-parallel-size: 8")]
    changes += [
        ("max-running-requests: 64", "max-num-seqs: 64"),
        ("    cuda-graph-max-bs: 64\n", ""),
    ]
    question = asked(*changes)
    env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": "***", "A": "1"}
    command = ("/v/python", "-m", "vllm.entrypoints.cli.main", "serve", "/m", "--port", "1")
    trials = records(question, WINS, versions={"vllm": "0.33.0"}, environment=env, command=command)
    plan = exported(question, trials, api_key_from="MY_KEY")
    assert plan.env == {"A": "1"}
    assert 'export VLLM_API_KEY="${MY_KEY}"' in launch_script(plan, [])
    docker = docker_script(plan, [])
    assert "vllm/vllm-openai:v0.33.0" in docker
    assert 'export VLLM_API_KEY="${MY_KEY}"' in docker
    assert "--env VLLM_API_KEY \\" in docker  # by name: no list of processes shows it


def table(question: Sweep, trials: list[Any], arm: str | None = None) -> Any:
    comparison = compare_sweep(question, trials)
    chosen = choose(question, comparison, trials, arm)
    assert chosen is not None
    return k_by_batch(question, comparison, chosen)


def test_steps_by_batch_are_those_that_were_fastest_and_better() -> None:
    question = asked()
    found = table(question, records(question, WINS))
    assert [(row.batch, row.steps) for row in found.rows] == [(1, 5), (8, 3), (64, 0)]
    steps = {"1": [5], "8": [3], "64": [0]}
    wanted = {batch: {"candidate_steps": each} for batch, each in steps.items()}
    assert json.loads(found.text) == wanted
    said = "\n".join(table_lines(found))
    assert "from 64 users: 0 (nothing is better than no speculation" in said
    assert "--speculative-num-steps 5 --speculative-num-draft-tokens 6" in said


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.5.9", "changes no steps while it runs"),
        ("0.5.12.post1", "one list of steps for all batches"),
        ("0.5.13", "cannot stop drafting at a batch size"),
        ("a branch of ours", "is no release"),
    ],
)
def test_a_release_that_reads_no_table_is_named(version: str, why: str) -> None:
    question = asked()
    found = table(question, records(question, WINS, versions={"sglang": version}))
    assert found.file is None
    assert why in found.said[0]


def test_one_number_of_steps_that_is_always_best_needs_no_table() -> None:
    question = asked()
    found = table(question, records(question, {"a": dict.fromkeys(BASE, 1.3)}))
    assert found.rows == ()
    said = "of 3, 5 steps, 3 are best at every measured batch: nothing to switch"
    assert found.said == (f"No table of K by batch: {said}.",)


def test_where_no_number_of_steps_is_better_there_is_no_table() -> None:
    question = asked()
    trials = records(question, {arm: dict.fromkeys(BASE, 0.8) for arm in ("a", "b")})
    found = table(question, trials, "a")
    said = "no number of steps (3, 5) is better than no speculation at any measured batch"
    assert found.said == (f"No table of K by batch: {said}.",)


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
def test_sglang_itself_reads_the_table(version: str, tmp_path: Path) -> None:
    """Its own loader and its own routing, taken out of the module that needs torch."""
    source = file_in_wheel("sglang", version, "srt/speculative/adaptive_spec_params.py")
    assert source is not None
    wanted = {"_load_adaptive_config", "AdaptiveStepSlot", "AdaptiveSpeculativeParams"}
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if getattr(node, "name", None) in wanted
        or (isinstance(node, ast.Import | ast.ImportFrom) and "sglang" not in ast.unparse(node))
    ]
    room: dict[str, Any] = {"log_info_on_rank0": lambda *_said: None, "logger": None}
    exec(compile(tree, "sglang", "exec"), room)
    question = asked()
    path = tmp_path / "adaptive.json"
    path.write_text(table(question, records(question, WINS)).text)
    params = room["AdaptiveSpeculativeParams"](5, str(path))
    read = {batch: params.get_steps_for_batch(batch) for batch in (1, 7, 8, 63, 64, 200)}
    assert read == {1: 5, 7: 5, 8: 3, 63: 3, 64: 0, 200: 0}


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.26.0", "0.33.0"])
def test_vllm_itself_reads_the_table(version: str) -> None:
    source = file_in_wheel("vllm", version, "v1/spec_decode/dynamic/utils.py")
    assert source is not None
    room: dict[str, Any] = {}
    exec(compile(source, "vllm", "exec"), room)
    changes = [("kind: sglang", "kind: vllm"), ("tp-size: 8", "tensor-parallel-size: 8")]
    changes += [
        ("max-running-requests: 64", "max-num-seqs: 64"),
        ("    cuda-graph-max-bs: 64\n", ""),
    ]
    question = asked(*changes)
    found = table(question, records(question, WINS, versions={"vllm": version}))
    config = json.loads(found.text)
    assert config["method"] == "eagle3"
    assert config["num_speculative_tokens"] == 5
    lookup = room["build_dynamic_sd_schedule_lookup"](
        config["num_speculative_tokens_per_batch_size"], 64, config["num_speculative_tokens"]
    )
    assert [lookup[batch] for batch in (1, 7, 8, 63, 64)] == [5, 5, 3, 3, 0]


@pytest.mark.parametrize(
    ("mark", "link"),
    [
        (None, None),
        ("http://127.0.0.1:5000\nabc\n", "http://127.0.0.1:5000/#/runs/abc"),
        ("sqlite:///mlflow.db\nabc\n", None),
        ("http://127.0.0.1:5000\n", None),
    ],
)
def test_the_link_is_known_of_a_published_trial(
    mark: str | None, link: str | None, tmp_path: Path
) -> None:
    if mark is not None:
        (tmp_path / ".mlflow_run_id").write_text(mark)
    assert published_link(tmp_path) == link


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("exported")) as made:
        yield made


def tolerant(question: Sweep) -> Sweep:
    """A busy machine is not the matter here."""
    return question.model_copy(update={"tolerate": {guard.name: "a busy day" for guard in GUARDS}})


@pytest.mark.long
def test_an_exported_vllm_serves(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLE3_RUNS", str(ground.place / "runs"))
    text = to_yaml(sweeping.sweep("small-vllm", arms="base+tuned", patches=""))
    for old, new in (
        ("kind: sglang", "kind: vllm"),
        ("tp-size", "tensor-parallel-size"),
        ("mem-fraction-static", "gpu-memory-utilization"),
        ("max-running-requests", "max-num-seqs"),
        ("    cuda-graph-max-bs: 64\n", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    ground.run(tolerant(parse_sweep(text, "small-vllm.yaml")))
    export("small-vllm", arm="tuned", out=str(ground.place / "vllm"))
    script = ground.place / "vllm" / "launch.sh"
    assert "VLLM_SERVER_DEV_MODE=" not in script.read_text()
    with rehearsing.Engine(ground.folder, script=script) as engine:
        engine.wait_for("Application startup complete")
        body = {"model": "shared/kimi-k2.5-int4", "prompt": "Hello", "max_tokens": 4}
        status, answer = engine.ask("/v1/completions", body)
        assert status == 200
        assert json.loads(answer)["usage"]["completion_tokens"] == 4
        engine.terminate()
        engine.ended()


@pytest.mark.slow
def test_an_exported_script_serves_once_its_patch_is_applied(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EAGLE3_RUNS", str(ground.place / "runs"))
    small = tolerant(sweeping.sweep(arms="base+tuned"))
    with pytest.raises(typer.Exit):
        export("small")
    assert "no run of small" in capsys.readouterr().err
    ground.run(small)
    with pytest.raises(typer.Exit):
        export("small")
    said = capsys.readouterr().err
    assert "nothing won" in said
    assert "--arm base is the baseline" in said
    folder = ground.place / "out"
    export("small", arm="tuned", out=str(folder))
    assert "tuned, which the verdict does not name, is in" in capsys.readouterr().out
    names = {path.name for path in folder.iterdir()}
    assert names == {"launch.sh", "tuned.service", "docker-run.sh", "kimi_k25_eagle3.diff"}

    before = ground.source.read_bytes()
    with rehearsing.Engine(ground.folder, script=folder / "launch.sh") as unpatched:
        assert unpatched.ended() == 1
    assert "is not the patched file of the trial" in unpatched.log
    apply = next(
        line.removeprefix("#   ")
        for line in (folder / "launch.sh").read_text().splitlines()
        if line.startswith("#   patch ")
    )
    assert shlex.split(apply)[0] == "patch"
    subprocess.run(["bash", "-c", apply], cwd=folder, check=True, capture_output=True, timeout=20)
    try:
        with rehearsing.Engine(ground.folder, script=folder / "launch.sh") as engine:
            engine.ready()
            body = {"text": "Hello", "sampling_params": {"max_new_tokens": 16, "ignore_eos": True}}
            status, answer = engine.ask("/generate", body)
            assert status == 200
            meta = json.loads(answer)["meta_info"]
            assert meta["completion_tokens"] == 16
            assert meta["spec_verify_ct"] < 16
            engine.terminate()
            engine.ended()
    finally:
        ground.source.write_bytes(before)
