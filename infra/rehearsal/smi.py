"""A pretend nvidia-smi for eight cards, answering from the host folder's memory files.

Formats follow nvidia-smi 580 (checked against its printed output): CSV with or without header
and units, ``topo``, ``nvlink``, ``-L`` and the plain table.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from infra.rehearsal import knobs, memory, smi_topology

if TYPE_CHECKING:
    from pathlib import Path

DRIVER = "580.95.05"
CUDA = "13.0"
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"

_UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "power.draw": "W",
    "power.limit": "W",
    "power.default_limit": "W",
    "clocks.sm": "MHz",
    "clocks.current.sm": "MHz",
    "clocks.max.sm": "MHz",
    "clocks.mem": "MHz",
    "clocks.max.memory": "MHz",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
}
_HEADERS = {
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "used_memory": "used_gpu_memory",
}


def uuid(gpu: int) -> str:
    """The made-up identifier of a card."""
    return f"GPU-0000000{gpu}-e391-4a6e-8a9e-00000000000{gpu}"


def _bus(gpu: int) -> str:
    return f"00000000:{0x11 + gpu * 0x10:02X}:00.0"


def _works(busy: bool, hot: bool) -> dict[str, str]:
    """What changes with the load: a hot card is as slow and warm as one that protects itself."""
    if not busy:
        clock, power, degrees, state, reasons = "180", "31.64", "33", "P8", 0x01
    elif hot:
        clock, power, degrees, state, reasons = "1215", "287.90", "91", "P1", 0x20
    else:
        clock, power, degrees, state, reasons = "2377", "341.27", "61", "P1", 0x00
    mask = f"0x{reasons:016X}"
    return {
        "power.draw": power,
        "clocks.sm": clock,
        "clocks.current.sm": clock,
        "temperature.gpu": degrees,
        "pstate": state,
        "clocks_event_reasons.active": mask,
        "clocks_throttle_reasons.active": mask,
    }


def _card(gpu: int, found: list[memory.Holder], *, hot: bool = False) -> dict[str, str]:
    used = memory.used_mib(found)
    busy = bool(found)
    return {
        "index": str(gpu),
        "uuid": uuid(gpu),
        "gpu_uuid": uuid(gpu),
        "name": NAME,
        "gpu_name": NAME,
        "driver_version": DRIVER,
        "pci.bus_id": _bus(gpu),
        "memory.total": str(memory.TOTAL_MIB),
        "memory.used": str(used),
        "memory.free": str(max(0, memory.TOTAL_MIB - used)),
        "utilization.gpu": "97" if busy else "0",
        "utilization.memory": "41" if busy else "0",
        "power.limit": "600.00",
        "power.default_limit": "600.00",
        "clocks.max.sm": "3090",
        "clocks.applications.graphics": "[N/A]",
        "clocks.default_applications.graphics": "[N/A]",
        "clocks.mem": "12481",
        "clocks.max.memory": "12481",
        "compute_mode": "Default",
        "compute_cap": "12.0",
        "persistence_mode": "Enabled",
        "mig.mode.current": "Disabled",
        "ecc.mode.current": "Enabled",
        "pcie.link.gen.current": "5",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        **_works(busy, hot),
    }


def _apps(gpu: int, found: list[memory.Holder]) -> list[dict[str, str]]:
    return [
        {
            "gpu_uuid": uuid(gpu),
            "gpu_name": NAME,
            "gpu_bus_id": _bus(gpu),
            "pid": str(holder.pid),
            "process_name": holder.name,
            "name": holder.name,
            "used_memory": str(holder.mib),
            "used_gpu_memory": str(holder.mib),
        }
        for holder in found
        if holder.pid is not None
    ]


def _csv(rows: list[dict[str, str]], asked: str, options: str) -> int:
    """Print a query's answer; like nvidia-smi, refuse a field that it does not know."""
    known = _card(0, []) if asked.startswith("gpu=") else _apps(0, [memory.Holder(0, 0, "")])[0]
    names = [name.strip() for name in asked.partition("=")[2].split(",")]
    for name in names:
        if name not in known:
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    units = "nounits" not in options
    if "noheader" not in options:
        heads = [_HEADERS.get(name, name) for name in names]
        with_units = [
            f"{head} [{_UNITS[name]}]" if units and name in _UNITS else head
            for head, name in zip(heads, names, strict=True)
        ]
        print(", ".join(with_units))
    for row in rows:
        print(
            ", ".join(
                f"{row[name]} {_UNITS[name]}" if units and name in _UNITS else row[name]
                for name in names
            )
        )
    return 0


def _table(cards: list[list[memory.Holder]], hot_gpu: int | None) -> int:
    line = "+-----------------------------------------+------------------------+------------------+"
    print(time.strftime("%a %b %e %H:%M:%S %Y"))
    print(f"| NVIDIA-SMI {DRIVER}   Driver Version: {DRIVER}   CUDA Version: {CUDA} |")
    print(line)
    for gpu, found in enumerate(cards):
        card = _card(gpu, found, hot=gpu == hot_gpu)
        print(f"|{gpu:4}  {NAME[:33]:33}  |   {_bus(gpu)} Off |")
        print(
            f"| N/A  {card['temperature.gpu']:>3}C    {card['pstate']}   "
            f"{float(card['power.draw']):5.0f}W /  600W | "
            f"{card['memory.used']:>7}MiB / {memory.TOTAL_MIB:>6}MiB | "
            f"{card['utilization.gpu']:>5}%      Default |"
        )
        print(line)
    print(
        "\n| Processes:\n|  GPU   GI   CI              PID   Type   Process name     GPU Memory |"
    )
    for gpu, found in enumerate(cards):
        for app in _apps(gpu, found):
            print(
                f"|{gpu:5}   N/A  N/A {app['pid']:>15}      C   "
                f"{app['process_name'][:32]:32} {app['used_memory']:>8}MiB |"
            )
    return 0


def main(folder: Path, arguments: list[str]) -> int:
    """Answer one command line; the exit code is nvidia-smi's."""
    settings = knobs.read(folder)
    delay = settings.release_delay_s
    cards = [memory.holders(folder, gpu, delay) for gpu in range(memory.GPUS)]
    options = next((a.partition("=")[2] for a in arguments if a.startswith("--format=")), "")
    for argument in arguments:
        if argument.startswith("--query-gpu="):
            rows = [
                _card(gpu, found, hot=gpu == settings.hot_gpu) for gpu, found in enumerate(cards)
            ]
            return _csv(rows, argument.removeprefix("--query-"), options)
        if argument.startswith("--query-compute-apps="):
            rows = [app for gpu, found in enumerate(cards) for app in _apps(gpu, found)]
            return _csv(rows, argument.removeprefix("--query-"), options)
    said = smi_topology.answer(arguments)
    if said is not None:
        return said
    if arguments[:1] in (["-L"], ["--list-gpus"]):
        for gpu in range(memory.GPUS):
            print(f"GPU {gpu}: {NAME} (UUID: {uuid(gpu)})")
        return 0
    if arguments:
        print(f"Invalid combination of input arguments: {' '.join(arguments)}", file=sys.stderr)
        return 2
    return _table(cards, settings.hot_gpu)
