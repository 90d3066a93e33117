"""Every night by itself: deployments, upkeep and notices on a real server, with a real worker."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from configs.notices import Notices, Webhook
from flows import services
from flows.notices import set_up_notices
from infra.services import ensure, running
from infra.store import read_json
from tests import rehearsing, sweeping
from tests.agent_host import until
from tests.deployed import deployed
from tests.webhook import receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deployed import Server
    from tests.sweeping import Ground
    from tests.webhook import Received

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_OVERNIGHT = "eagle3-sweep/overnight"
_BOUND_S = 150
"""For a flow run on a busy machine: its process alone takes five seconds to start on an idle one."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("nightly")) as made:
        made.host_file()
        yield made


@pytest.fixture(scope="module")
def server(ground: Ground) -> Iterator[Server]:
    with deployed(ground) as made:
        yield made


@pytest.fixture(scope="module")
def hook(server: Server) -> Iterator[Received]:
    """A webhook that is told everything."""
    with receiver() as received, pytest.MonkeyPatch.context() as patched:
        patched.setenv("EAGLE3_TEST_URL", received.url)
        said: list[str] = []
        for _twice in range(2):
            with temporary_settings({PREFECT_API_URL: server.api}):
                set_up_notices(notices(), said.append)
        assert said == ["notices: morning to hook; host_lost to hook"] * 2
        yield received


def notices() -> Notices:
    return Notices(
        to={"hook": Webhook(url_from="EAGLE3_TEST_URL")}, morning=("hook",), host_lost=("hook",)
    )


def box(ground: Ground) -> str:
    return str(ground.place / "configs" / "hosts" / "box.yaml")


def night(server: Server, ground: Ground, name: str, hours_late: float) -> Any:
    file = ground.sweep_file(sweeping.sweep(name))
    planned = datetime.now(UTC) - timedelta(hours=hours_late)
    run = server.start(
        _OVERNIGHT, planned, sweep=str(file), host=box(ground), fresh=True, start_within_h=4
    )
    return server.ended(run, _BOUND_S)


def test_a_night_whose_turn_comes_late_but_in_time_is_run(server: Server, ground: Ground) -> None:
    ended = night(server, ground, "in-time", 3.5)
    assert (ended["state_type"], ended["name"]) == ("COMPLETED", "in-time")


def test_a_missed_night_is_not_made_up_for_by_day(server: Server, ground: Ground) -> None:
    ended = night(server, ground, "missed", 4.5)
    assert (ended["state_type"], ended["state"]["name"]) == ("CANCELLED", "Missed")
    assert "4.5 h later" in ended["state"]["message"]
    assert ground.runs.latest("missed") is None


def test_one_message_in_the_morning_with_verdict_counts_and_links(
    server: Server, ground: Ground, hook: Received
) -> None:
    night(server, ground, "told", 1)
    ended = server.ended(server.start("eagle3-morning/eagle3-morning", hours=2), _BOUND_S)
    assert ended["state_type"] == "COMPLETED"
    (message,) = until(lambda: hook.about("told"), 90)
    assert message["subject"] == "eagle3-sweep: told: Completed"
    assert "(1 ok)" in message["body"] or "(1 suspect)" in message["body"]
    assert f"run: {server.api.removesuffix('/api')}/runs/flow-run/" in message["body"]
    assert f"report: {server.api.removesuffix('/api')}/artifacts/artifact/" in message["body"]


def test_a_host_that_is_lost_is_told_at_once_and_a_fit_one_is_not(
    server: Server, ground: Ground, hook: Received
) -> None:
    lost = ground.place / "configs" / "hosts" / "gone.yaml"
    port = rehearsing.free_port()
    connect = f"connect: {{kind: ssh, host: 127.0.0.1, port: {port}, user: nobody}}"
    lost.write_text(
        f"name: gone\n{connect}\npython: python3\ngpus: 8\nhost_class: rehearsal\n", "utf-8"
    )
    run = server.start("eagle3-host-check/eagle3-host-check", hosts=[box(ground), str(lost)])
    ended = server.ended(run, _BOUND_S)
    assert ended["state_type"] == "FAILED"
    assert ended["state"]["message"].startswith(f"not fit: {lost}")
    (message,) = until(lambda: hook.about("lost"), 90)
    assert str(lost) in message["subject"]
    # Prefect sends logs in batches, the last one perhaps after the end.
    until(lambda: "gpus: 8 of 8 GPUs free" in server.logs(run), 90)
    until(lambda: "engine: sglang" in server.logs(run), 90)


def test_the_secret_of_a_webhook_is_shown_nowhere(server: Server, hook: Received) -> None:
    shown = json.dumps(
        [server.ask("block_documents/filter", {}), server.ask("automations/filter", {})]
    )
    assert "eagle3-hook" in shown
    assert "a-secret-path" not in shown
    assert len(server.ask("automations/filter", {})) == 2, "twice is once"


def test_what_a_file_no_longer_names_is_taken_away(server: Server, hook: Received) -> None:
    # An event of its own: one that expects any would be fired by its own firing, for ever.
    trigger = {"type": "event", "posture": "Reactive", "threshold": 1, "expect": ["mine"]}
    mine = {"name": "mine", "trigger": trigger, "actions": [{"type": "do-nothing"}]}
    made = server.ask("automations/", mine)
    with temporary_settings({PREFECT_API_URL: server.api}):
        set_up_notices(notices().model_copy(update={"morning": ()}), print)
        names = {found["name"] for found in server.ask("automations/filter", {})}
        set_up_notices(notices(), print)
    assert names == {"eagle3: host_lost to hook", "mine"}
    server.cli("automation", "delete", "--id", made["id"])


def test_a_sweep_typed_into_the_form_is_run(server: Server, ground: Ground) -> None:
    asked = sweeping.sweep("typed", arms="base")
    plain = json.loads(asked.model_dump_json())
    probe = {"name": "load", "traffic": plain["probes"]["load"]}
    typed = {key: plain[key] for key in ("name", "question", "hosts", "engine", "baseline")}
    typed |= {"arms": [{"name": "base"}], "probes": [probe], "blocks": 1}
    typed["more"] = {"patience": plain["patience"]}
    run = server.start("eagle3-sweep/adhoc", sweep=typed, host=box(ground))
    ended = server.ended(run, _BOUND_S)
    assert (ended["state_type"], ended["name"]) == ("COMPLETED", "typed"), server.logs(run)


@pytest.mark.long
def test_what_is_wrong_in_the_form_is_said_with_its_place(server: Server, ground: Ground) -> None:
    plain = json.loads(sweeping.sweep("wrong", arms="base").model_dump_json())
    typed = {key: plain[key] for key in ("name", "question", "hosts", "engine")}
    probe = {"name": "load", "traffic": plain["probes"]["load"]}
    typed |= {"arms": [{"name": "base"}], "probes": [probe], "baseline": "other"}
    run = server.start("eagle3-sweep/adhoc", sweep=typed, host=box(ground))
    ended = server.ended(run, _BOUND_S)
    assert (ended["state_type"], ended["name"]) == ("FAILED", "wrong")
    assert "form:1: baseline: " in ended["state"]["message"]


def test_a_slot_that_nobody_holds_is_given_back(server: Server, ground: Ground) -> None:
    server.ask("v2/concurrency_limits/", {"name": "host-leaked", "limit": 1, "active_slots": 1})
    reap(server)
    assert server.ask("v2/concurrency_limits/host-leaked")["active_slots"] == 1, "not at once"
    reap(server, slot_after_s=0)
    assert server.ask("v2/concurrency_limits/host-leaked")["active_slots"] == 0


@pytest.mark.long
def test_a_run_whose_worker_died_with_it_is_ended_and_one_that_lives_is_not(
    server: Server, ground: Ground
) -> None:
    ground.host_file(lease_s=300)
    ground.plant("target_weights", "hang", rank=3)
    run = server.begin(ground, sweeping.sweep("orphan", arms="tuned", silence_s=100))
    until(lambda: sweeping.loads(ground.attempt("orphan")), 120)
    reap(server, slot_after_s=0)
    assert server.ask(f"flow_runs/{run}")["state_type"] == "RUNNING"
    assert server.ask("v2/concurrency_limits/host-box")["active_slots"] == 1
    for pid in (running("worker") or {})["pid"], flow_pid(ground, "orphan"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: running("worker") is None)
    ensure(services._worker(server.env, server.api), print)
    assert server.ask(f"flow_runs/{run}")["state_type"] == "RUNNING", "Prefect does not notice"
    reap(server)
    ended = server.ask(f"flow_runs/{run}")
    assert ended["state_type"] == "CRASHED"
    assert ended["state"]["message"] == "found dead: its process is gone"
    slot = server.ask("v2/concurrency_limits/host-box")
    assert slot["active_slots"] == 0, "its slot is free at once"
    assert ground.empty()
    assert next(ground.latest("orphan").trials()).finished
    assert not (ground.root / "claim.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_night_whose_worker_is_gone_goes_on_where_it_stopped(
    server: Server, ground: Ground, how: str
) -> None:
    ground.host_file(lease_s=300)
    ground.plant("target_weights", "hang", rank=3)
    file = ground.sweep_file(sweeping.sweep(how, arms="tuned", silence_s=100))
    wanted = {"sweep": str(file), "host": box(ground), "fresh": True}
    planned = datetime.now(UTC) - timedelta(hours=1)
    run = server.start(_OVERNIGHT, planned, start_within_h=4, **wanted)
    until(lambda: sweeping.loads(ground.attempt(how)), 120)
    end_worker([(running("worker") or {})["pid"], flow_pid(ground, how)], how)
    # Were it a first begin, it would be too late for it now.
    with temporary_settings({PREFECT_API_URL: server.api}), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(run), parameters={**wanted, "start_within_h": 0.5})
    ensure(services._worker(server.env, server.api), print)
    reap(server)
    ended = server.ended(run, _BOUND_S)
    assert (ended["state_type"], ended["run_count"]) == ("COMPLETED", 2), server.logs(run)
    (folder,) = ground.runs.runs(how)
    assert [attempt.path.name for attempt in folder.trials()] == [
        "b01-tuned.a1",
        "b01-tuned.a2",
    ]
    assert (folder.path / "report" / "report.html").is_file()
    assert ground.empty()


def end_worker(pids: list[int], how: str) -> None:
    """As a crash does, or as systemd stops it: a signal, and an end to all of it if that is lost.

    Prefect's worker may lose one on a busy machine: it says that it got it, and works on (3.9.1).
    """
    if how == "stopped":
        os.kill(pids[0], signal.SIGTERM)
        with suppress(AssertionError):
            until(lambda: running("worker") is None, 10)
    for pid in pids if running("worker") is not None else ():
        os.kill(pid, signal.SIGKILL)
    until(lambda: running("worker") is None, 60)


def flow_pid(ground: Ground, sweep: str) -> int:
    return int(read_json(ground.latest(sweep).path / "run.json")["pid"])


def reap(server: Server, **parameters: Any) -> None:
    run = server.start("eagle3-reaper/eagle3-reaper", **parameters)
    assert server.ended(run, _BOUND_S)["state_type"] == "COMPLETED", server.logs(run)


@pytest.mark.long
def test_to_deploy_again_changes_nothing_that_people_switched(
    server: Server, ground: Ground
) -> None:
    def schedule() -> Any:
        (found,) = server.ask(f"deployments/name/{_OVERNIGHT}")["schedules"]
        return found

    assert schedule()["active"] is False
    server.cli("deployment", "schedule", "resume", _OVERNIGHT, schedule()["id"])
    said: list[str] = []
    services._prepare(server.env, said.append)
    assert schedule()["active"] is True
    assert any("overnight: its schedule stays switched on" in line for line in said)


def test_pool_queues_and_slots_are_there_once(server: Server, ground: Ground) -> None:
    queues = server.ask(f"work_pools/{services.POOL}/queues/filter", {})
    assert {q["name"]: q["priority"] for q in queues if q["name"] != "default"} == {
        "care": 1,
        "lanes": 2,
        "nights": 3,
        "days": 4,
    }


def test_the_form_has_fields_for_a_whole_sweep(server: Server) -> None:
    for name in ("eagle3-sweep/adhoc", "eagle3-sweep/eagle3-sweep"):
        schema = server.ask(f"deployments/name/{name}")["parameter_openapi_schema"]
        assert {"Stream", "Eagle3", "Sglang"} <= set(schema["definitions"]), name
