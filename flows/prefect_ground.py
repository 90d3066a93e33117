"""What our deployments stand on in a Prefect server: pool, queues, slots, notices; twice is once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists

from configs.notices import read_notices
from configs.problems import ConfigError
from flows.doctor import known_hosts
from flows.host_slots import host_slot, make_slots
from flows.services import POOL
from infra.errors import WorldError
from infra.services import module

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

QUEUES: Final = {"care": 1, "lanes": 2, "nights": 3, "days": 4}
"""Queue -> priority: upkeep is short and never waits; a sweep that runs comes before one that would
begin; nights come before what is typed by day."""
_MOST: Final = 200


class NotDeployed(WorldError):
    """Prefect refused something; its own words follow."""


class _Schedule(NamedTuple):
    """One schedule of a deployment, as the server has it."""

    deployment: UUID
    id: UUID
    active: bool


def prepare(say: Callable[[str], None]) -> None:
    """Makes everything that is missing, deploys prefect.yaml, and leaves alone what people switched.

    Raises:
        ConfigError: configs/notices.yaml is wrong, or names a secret that is not set.
        NotDeployed: `prefect deploy` refused.
    """
    asyncio.run(_pool())
    with get_client(sync_client=True) as client:
        before = _schedules(client)
        hosts = known_hosts()
        make_slots(host_slot(name) for name in hosts)
        notices = read_notices()
        if notices is not None:
            from flows.notices import set_up_notices

            set_up_notices(notices, say)
        _deploy()
        _as_switched(client, before, say)
    say(f"deployed; one slot each for {', '.join(hosts) or 'no host'}")


async def _pool() -> None:
    """The pool with its queues; what people changed in them stays (a pause, a limit)."""
    async with get_client() as client:
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        there = {queue.name for queue in await client.read_work_queues(work_pool_name=POOL)}
        for name, priority in QUEUES.items():
            if name not in there:
                await client.create_work_queue(name, work_pool_name=POOL, priority=priority)


def _schedules(client: SyncPrefectClient) -> dict[tuple[str, str], _Schedule]:
    return {
        (one.name, schedule.slug): _Schedule(one.id, schedule.id, schedule.active)
        for one in client.read_deployments(limit=_MOST)
        for schedule in one.schedules
        if schedule.slug
    }


def _deploy() -> None:
    done = subprocess.run(
        module("prefect", "--no-prompt", "deploy", "--all"),
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-6:]
        raise NotDeployed("prefect deploy --all: " + " | ".join(said))


def _as_switched(
    client: SyncPrefectClient,
    before: dict[tuple[str, str], _Schedule],
    say: Callable[[str], None],
) -> None:
    """Puts schedules back on or off: what the file says of that counts the first time only."""
    for place, schedule in _schedules(client).items():
        known = before.get(place)
        if known is not None and known.active != schedule.active:
            client.update_deployment_schedule(schedule.deployment, schedule.id, active=known.active)
            say(f"{place[0]}: its schedule stays switched {'on' if known.active else 'off'}")


def main() -> int:
    """`python -m flows.prefect_ground`: prepares the server of PREFECT_API_URL."""
    try:
        prepare(print)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except WorldError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
