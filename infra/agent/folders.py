"""Folders and JSON files that belong to us alone, and that are whole or absent, never half."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from typing import Any, Optional

from infra.agent.refusal import Refusal

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def own_folder(path: str) -> str:
    """Makes a folder (0700, parents too) unless it is there, and refuses one of another user.

    A folder that exists keeps its mode: it may be a shared disk that somebody pointed us to.
    """
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        own_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise Refusal("not_a_folder", f"{path} is in the way") from None
    return existing_folder(path)


def existing_folder(path: str) -> str:
    """Gives the path back if it is a folder of ours."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise Refusal("no_such_folder", f"{path} does not exist on the host") from None
    if status.st_uid != os.geteuid():
        raise Refusal(
            "foreign_folder",
            f"{path} belongs to uid {status.st_uid}, and we are uid {os.geteuid()}",
            path=path,
            owner_uid=status.st_uid,
        )
    return path


def write_bytes(path: str, data: bytes, durable: bool = True, mode: int = 0o600) -> None:
    """Writes beside, syncs and renames; a full disk is the refusal ``disk_full``.

    Args:
        path: The file; its folder exists.
        data: The whole content.
        durable: Sync to disk first. Off for what a reboot voids anyway (leases, progress).
        mode: Permission bits of the file.
    """
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        try:
            write_all(fd, data)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, path)
    except OSError as fault:
        forget(beside)
        if fault.errno in DISK_FULL:
            raise Refusal("disk_full", f"no space left to write {path}", path=path) from fault
        raise


def write_all(fd: int, data: bytes) -> None:
    """Writes every byte, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def dumps(value: Any) -> str:
    """JSON on one line, ASCII only; NaN and infinities are errors."""
    return json.dumps(value, allow_nan=False)


def write_json(path: str, value: Any, durable: bool = True) -> None:
    """Writes one JSON value atomically."""
    write_bytes(path, dumps(value).encode() + b"\n", durable)


def read_json(path: str) -> Optional[Any]:
    """Reads a JSON file; None if it is absent. A torn file is a bug or foreign, so it raises."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None


def read_object(path: str) -> Optional[dict[str, Any]]:
    """Reads a JSON object; None if it is absent or not a readable object."""
    try:
        value = read_json(path)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def forget(path: str) -> bool:
    """Removes a file and says whether there was one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def lock(path: str, wait: bool) -> Optional[int]:
    """Takes an advisory lock that the kernel frees when its last holder ends.

    Returns:
        The file descriptor that holds it, or None if another process has it and ``wait`` is off.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def tail(path: str, size: int) -> str:
    """The end of a text file, decoded leniently; empty if the file is absent."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def loads_last_line(text: str) -> dict[str, Any]:
    """The JSON object on the last line of a program's output (others may have printed before)."""
    lines = text.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refusal("bad_answer", f"no JSON object in {text[-200:]!r}")
    return value
