"""What ``nvidia-smi`` says instead of an answer, and what it means for a host."""

from __future__ import annotations

import re
from typing import NamedTuple


class Trouble(NamedTuple):
    """Why a host cannot be used."""

    reason: str
    message: str
    bus_id: str | None = None


#: Text of the driver tools -> reason. The order matters: the first one found is the cause.
_SIGNS = (
    ("gpu_lost", r"Unable to determine the device handle for"),
    ("gpu_lost", r"GPU is lost|fallen off the bus|GPU requires reset"),
    ("driver_mismatch", r"Driver/library version mismatch"),
    ("driver_not_running", r"couldn't communicate with the NVIDIA driver|Driver Not Loaded"),
    ("no_gpus", r"No devices were found|No GPUs? (?:were )?found"),
    ("permission_denied", r"(?<!\[)Insufficient Permissions"),
    ("gpu_access_lost", r"Failed to initialize NVML: (?:Unknown Error|GPU access blocked)"),
    ("nvml_missing", r"NVML Shared Library|couldn't find libnvidia-ml\.so|libnvidia-ml.*not found"),
    ("nvml_failed", r"Failed to initialize NVML"),
    ("nvidia_smi_missing", r"nvidia-smi: (?:command )?not found|nvidia-smi.*No such file"),
)
_COMPILED = tuple((reason, re.compile(pattern, re.IGNORECASE)) for reason, pattern in _SIGNS)
#: Exit codes from the manual page of nvidia-smi, and the shell's own.
_EXIT_CODES = {
    3: "not_supported",
    4: "permission_denied",
    8: "power_cable_missing",
    9: "driver_not_running",
    10: "interrupt_trouble",
    12: "nvml_missing",
    14: "inforom_corrupted",
    15: "gpu_lost",
    124: "nvidia_smi_hangs",
    126: "permission_denied",
    127: "nvidia_smi_missing",
    137: "nvidia_smi_hangs",
}
_BUS_ID = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]")


def find_trouble(text: str, exit_code: int = 0) -> Trouble | None:
    """The first sign of a broken host in what was printed, else in the exit code, else None."""
    for reason, sign in _COMPILED:
        for line in text.splitlines():
            if sign.search(line):
                bus = _BUS_ID.search(line)
                return Trouble(reason, " ".join(line.split())[:300], bus[0] if bus else None)
    if exit_code:
        reason = _EXIT_CODES.get(exit_code, "nvidia_smi_failed")
        first = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
        return Trouble(
            reason, f"nvidia-smi ended with exit code {exit_code}. {first[:200]}".strip()
        )
    return None
