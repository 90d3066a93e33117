"""What this host is, as raw texts and numbers; what they mean is read elsewhere."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from typing import Any, Optional

from infra.agent import commands, content, folders, ports, processes, release, topology
from infra.agent.jobs import Job
from infra.agent.processes import Process
from infra.agent.refusal import Refusal

PACKAGES = ("sglang", "vllm", "torch", "aiohttp")

_CARD_ROWS = (
    "index,uuid,name,driver_version,memory.used,memory.total,utilization.gpu,power.draw,"
    "clocks.sm,clocks.max.sm,temperature.gpu,{reasons}"
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_SMI_TIMEOUT_S = 15.0
_LOOK_TIMEOUT_S = 5.0
_PYTHON_TIMEOUT_S = 15.0
_ARGS_LIMIT = 500
_VERSIONS = """
import importlib.metadata as metadata, json, platform, sys
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        versions[name] = None
print(json.dumps({"version": platform.python_version(), "packages": versions}))
"""


def hello(asked: dict[str, Any]) -> dict[str, Any]:
    """Who answers, on which boot; makes our root if one is named, and refuses a foreign one."""
    if asked.get("root"):
        folders.own_folder(asked["root"])
    return {
        "version": os.path.basename(sys.argv[0]),
        "python": platform.python_version(),
        "boot_id": processes.boot_id(),
        **_user(),
        "monotonic": time.monotonic(),
        "wall": time.time(),
    }


def facts(job: Job) -> dict[str, Any]:
    """Asks the host everything that a trial's numbers may depend on.

    The topology is asked for at a sweep's arrival alone: it takes six more programs.
    """
    asked = job.request
    # At once: on a host without persistence mode each nvidia-smi takes a second or two.
    cards, apps, python = commands.at_once(
        _cards,
        lambda: release.smi("compute-apps", release.APP_ROWS, _SMI_TIMEOUT_S),
        lambda: _engine_python(asked.get("python")),
    )
    return {
        "nvidia_smi": {"gpus": cards, "apps": apps},
        "topology": topology.ask() if asked.get("topology") else None,
        "processes": _rows(release.app_pids(apps["stdout"])),
        "engine_python": python,
        "host": {**_machine(), **_user(), "boot_id": processes.boot_id()},
        "paths": {path: _path(path) for path in asked.get("paths") or []},
        "ports_free": {str(port): ports.is_free(int(port)) for port in asked.get("ports") or []},
    }


def look() -> dict[str, Any]:
    """What nvidia-smi says at this moment, and whose processes are on the GPUs.

    The clocks come first: they change at once when the load ends. Of the processes only those on
    a GPU and the ones above them are looked up, without their arguments: this runs beside a probe.
    """
    cards = _cards(_LOOK_TIMEOUT_S)
    apps = release.smi("compute-apps", release.APP_ROWS, _LOOK_TIMEOUT_S)
    found = _with_parents(release.app_pids(apps["stdout"]))
    environments = processes.environments(found)
    return {
        "gpus": cards,
        "apps": apps,
        "processes": [_named(one, environments.get(one.pid)) for one in found],
    }


def _with_parents(pids: set[int]) -> list[Process]:
    """The processes of these numbers and all above them, as far as they can be seen."""
    found: dict[int, Process] = {}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        process = processes.look(pid) if pid > 1 and pid not in found else None
        if process is not None:
            found[pid] = process
            waiting.append(process.ppid)
    return list(found.values())


def _cards(timeout_s: float = _SMI_TIMEOUT_S) -> dict[str, Any]:
    """The GPU rows; drivers before 535 know the clock reasons under their older name only."""
    got: dict[str, Any] = {}
    for reasons in _REASONS:
        got = release.smi("gpu", _CARD_ROWS.format(reasons=reasons), timeout_s)
        if got["exit"] is None or "is not a valid field" not in got["stdout"] + got["stderr"]:
            return got
    return got


def _rows(on_gpus: set[int]) -> list[dict[str, Any]]:
    """Our own user's processes (without kernel threads) and whoever is on a GPU."""
    uid, now = os.getuid(), processes.table()
    chosen = [
        process
        for process in now.values()
        if process.pid in on_gpus or (process.uid == uid and 2 not in (process.pid, process.ppid))
    ]
    environments = processes.environments(chosen)
    return [_row(process, environments.get(process.pid)) for process in chosen]


def _row(process: Process, environment: Optional[processes.Environment]) -> dict[str, Any]:
    # With the memory lock of a stuck process the command line cannot be read either.
    readable = environment is not None and not environment.blank
    return {**_named(process, environment), "args": _args(process.pid) if readable else ""}


def _named(process: Process, environment: Optional[processes.Environment]) -> dict[str, Any]:
    return {
        **process._asdict(),
        "user": release.user_name(process.uid),
        "marker": environment.marker if environment else None,
    }


def _args(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(_ARGS_LIMIT)
    except OSError:
        return ""
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def _user() -> dict[str, Any]:
    return {
        "uid": os.getuid(),
        "user": release.user_name(os.getuid()),
        "home": os.path.expanduser("~"),
    }


def _engine_python(python: Optional[str]) -> Optional[dict[str, Any]]:
    if python is None:
        return None
    got = commands.run([python, "-c", _VERSIONS, *PACKAGES], _PYTHON_TIMEOUT_S)
    try:
        found = folders.loads_last_line(got["stdout"])
    except Refusal:
        found = {"version": None, "packages": dict.fromkeys(PACKAGES)}
    return {
        "python": python,
        **found,
        "error": got["error"] or got["stderr"].strip()[-500:] or None,
    }


def _machine() -> dict[str, Any]:
    uname = os.uname()
    memory = _fields("/proc/meminfo")
    return {
        "cpu_model": _fields("/proc/cpuinfo").get("model name"),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "memory_total_bytes": _kib(memory.get("MemTotal")),
        "memory_available_bytes": _kib(memory.get("MemAvailable")),
        "shm_free_bytes": _free("/dev/shm"),
        "uname": " ".join(uname),
        "hostname": uname.nodename,
        "distro": _distro(),
        "python": platform.python_version(),
        "uptime_s": float(_text("/proc/uptime").split()[0]),
        "dockerenv": os.path.exists("/.dockerenv"),
        "pid1_comm": _text("/proc/1/comm").strip(),
    }


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _fields(path: str) -> dict[str, str]:
    """The first value of each ``name: value`` line."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _kib(text: Optional[str]) -> Optional[int]:
    return int(text.split()[0]) * 1024 if text else None


def _distro() -> Optional[str]:
    for line in _text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _free(path: str) -> Optional[int]:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _path(path: str) -> dict[str, Any]:
    """Whether a path is there, how large its files are, and the space left where it lies."""
    there = path
    while not os.path.exists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    exists = os.path.exists(path)
    return {
        "exists": exists,
        "kind": None if not exists else "folder" if os.path.isdir(path) else "file",
        "size_bytes": _size(path) if exists else None,
        "content": content.digest(path) if exists else None,
        "disk_free_bytes": _free(there),
    }


def _size(path: str) -> int:
    """Bytes of a file, or of the files directly in a folder (a model's shards)."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    with os.scandir(path) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
