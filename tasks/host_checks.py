"""Is a host fit for a night: what a look at it shows, each point judged in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tasks.gpus import survey_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from configs.host import Host

Level = Literal["ok", "warning", "fail"]

ENGINES: Final = ("sglang", "vllm")
_GB: Final = 1e9
_LEAST_DISK_GB: Final = 2.0
"""A night's logs, samples and backups; engines write their own caches beside that."""
_GOOD_DISK_GB: Final = 20.0
_SHM: Final = "/dev/shm"  # noqa: S108 - looked at, never written
_LEAST_SHM_GB: Final = 1.0
"""NCCL's shared-memory transport and the schedulers' queues; containers have 64 MB by default."""


class Check(NamedTuple):
    """One point."""

    name: str
    level: Level
    text: str


def judge_host(host: Host, raw: Mapping[str, Any], folders: Mapping[str, str]) -> tuple[Check, ...]:
    """Judges what the agent's ``facts`` gave.

    Args:
        host: Its file.
        raw: The facts, asked for the engine's Python, our folder, and the models' folders.
        folders: What was asked for -> its path there; our own folder is ``folder``.
    """
    engines = raw["engine_pythons"]
    return (
        _gpus(host, raw["nvidia_smi"]),
        *(_engine(python, found) for python, found in engines.items()),
        *_room(raw["paths"], folders),
        _shm(raw["host"]["shm_free_bytes"]),
        *_models(raw["paths"], folders),
    )


def worst(checks: Sequence[Check]) -> Level:
    """The worst level of a host's checks."""
    order: tuple[Level, ...] = ("fail", "warning")
    return next((level for level in order if any(c.level == level for c in checks)), "ok")


def _gpus(host: Host, smi: Mapping[str, Any]) -> Check:
    cards = smi["gpus"]
    found = survey_gpus(
        cards["stdout"] or cards["stderr"],
        smi["apps"]["stdout"],
        exit_code=1 if cards["exit"] is None else cards["exit"],
        wanted=host.gpus,
        free_below_mib=host.free_below_mib,
    )
    if not found.host_ok:
        return Check("gpus", "fail", f"{found.reason}: {found.message}")
    driver = ", ".join(sorted({row.driver_version for row in found.gpus if row.driver_version}))
    said = f"{len(found.free)} of {len(found.gpus)} GPUs free, driver {driver or 'unknown'}"
    if found.busy:
        who = ", ".join(f"{app.pid} ({app.name or 'name not shown'})" for app in found.apps)
        held = ", ".join(map(str, found.busy))
        return Check("gpus", "warning", f"{said}; somebody computes on {held}: {who}")
    if found.unknown:
        return Check("gpus", "warning", f"{said}; {'; '.join(found.warnings)}")
    return Check("gpus", "ok", said)


def _engine(python: str, found: Mapping[str, Any]) -> Check:
    packages = found["packages"]
    there = [f"{name} {packages[name]}" for name in ENGINES if packages.get(name)]
    if not there:
        why = found.get("error") or f"neither of {', '.join(ENGINES)} is installed in it"
        return Check("engine", "fail", f"{python}: {why}")
    torch = packages.get("torch")
    return Check("engine", "ok", ", ".join([*there, *([f"torch {torch}"] if torch else [])]))


def _room(paths: Mapping[str, Any], folders: Mapping[str, str]) -> Iterator[Check]:
    place = folders["folder"]
    free = paths[place]["disk_free_bytes"]
    if free is None:
        yield Check("disk", "warning", f"{place}: free space is not known")
        return
    said = f"{free / _GB:.0f} GB free at {place}"
    low = free < _LEAST_DISK_GB * _GB
    yield Check("disk", "fail" if low else "warning" if free < _GOOD_DISK_GB * _GB else "ok", said)


def _shm(free: int | None) -> Check:
    if free is None:
        return Check("shm", "warning", f"{_SHM}: free space is not known")
    said = f"{free / _GB:.1f} GB free in {_SHM}"
    if free < _LEAST_SHM_GB * _GB:
        return Check("shm", "warning", f"{said}: NCCL may need more (docker run --shm-size)")
    return Check("shm", "ok", said)


def _models(paths: Mapping[str, Any], folders: Mapping[str, str]) -> Iterator[Check]:
    for named, place in folders.items():
        if named == "folder":
            continue
        found = paths[place]
        if not found["exists"]:
            yield Check("model", "fail", f"{named}: no such folder on the host ({place})")
        else:
            yield Check("model", "ok", f"{named}: {found['size_bytes'] / _GB:.1f} GB")
