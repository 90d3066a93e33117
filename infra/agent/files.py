"""Changes single files of an engine's installation, and puts them back exactly as they were."""

from __future__ import annotations

import base64
import contextlib
import errno
import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from typing import Any, Optional

from infra.agent import commands, content, folders, ledger
from infra.agent.refusal import Refusal

BACKUP = ".eagle3-sweep.orig"
NOTE = ".eagle3-sweep.json"
PYTHON_TIMEOUT_S = 20.0
"""A cold start of a large environment on a network disk takes seconds."""

MOST_HEAD_BYTES = 16 << 20

_COMPILE = "import sys; compile(open(sys.argv[1], 'rb').read(), sys.argv[2], 'exec')"
_LOCATE = """
import importlib.metadata as metadata, importlib.util as util, json, os, sys
package, relative = sys.argv[1:]
spec = util.find_spec(package)
places = list(spec.submodule_search_locations or []) if spec else []
paths = [os.path.join(place, relative) for place in places]
try:
    version = metadata.version(package)
except metadata.PackageNotFoundError:
    version = None
found = [path for path in paths if os.path.exists(path)]
print(json.dumps({"path": (found or paths or [None])[0], "version": version}))
"""


def file(asked: dict[str, Any]) -> dict[str, Any]:
    """One operation on one file."""
    operation = OPERATIONS.get(asked["op"])
    if operation is None:
        raise Refusal("unknown_op", f"no file operation {asked['op']!r}")
    try:
        return operation(asked)
    except KeyError as missing:
        raise Refusal("bad_request", f"file {asked['op']}: {missing} is missing") from missing
    except OSError as fault:
        if fault.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Refusal("not_permitted", str(fault)) from fault
        raise


def digest(path: str) -> Optional[str]:
    """SHA-256 of a file's bytes; None if there is no such file."""
    total = hashlib.sha256()
    try:
        with open(path, "rb") as source:
            for block in iter(lambda: source.read(1 << 20), b""):
                total.update(block)
    except FileNotFoundError:
        return None
    return total.hexdigest()


def _sha256(asked: dict[str, Any]) -> dict[str, Any]:
    path = asked["path"]
    value = digest(path)
    return {"path": path, "exists": value is not None, "sha256": value}


def _write(asked: dict[str, Any]) -> dict[str, Any]:
    """Replaces a file's content if it is what the caller read and the new text compiles.

    With ``ledger`` the file is one that is to be put back. Asked again, because the first answer
    was lost, it says what it did then.
    """
    path, expected = asked["path"], asked["expect_sha256"]
    now = digest(path)
    if now is None:
        raise Refusal("no_such_file", f"{path} does not exist")
    try:
        with open(asked["content_path"], "rb") as source:
            data = source.read()
    except FileNotFoundError:
        raise Refusal("no_such_file", f"{asked['content_path']} does not exist") from None
    written = hashlib.sha256(data).hexdigest()
    if now != expected:
        note = folders.read_object(path + NOTE) or {}
        if now == written == note.get("written_sha256") and note.get("read_sha256") == expected:
            return _written(path, written, backed_up=note["backed_up"])
        raise Refusal("changed", f"{path} is not what was read before", sha256=now)
    _check_compiles(asked["python"], asked["content_path"], path)
    if asked.get("ledger"):
        ledger.note(asked["ledger"], path)
    backed_up = _back_up(path, now)
    before = os.stat(path)
    note = {
        "original_sha256": now if backed_up else digest(path + BACKUP),
        "read_sha256": expected,
        "written_sha256": written,
        "backed_up": backed_up,
    }
    folders.write_json(path + NOTE, note)
    folders.write_bytes(path, data, mode=stat.S_IMODE(before.st_mode))
    os.chmod(path, stat.S_IMODE(before.st_mode))
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.chown(path, before.st_uid, before.st_gid)
    return _written(path, written, backed_up=backed_up)


def _written(path: str, sha256: str, *, backed_up: bool) -> dict[str, Any]:
    return {"path": path, "sha256": sha256, "backup": path + BACKUP, "backed_up": backed_up}


def _check_compiles(python: str, content: str, path: str) -> None:
    """Before anything is touched: a module that does not compile must never be in place."""
    got = commands.run([python, "-I", "-c", _COMPILE, content, path], PYTHON_TIMEOUT_S)
    if got["error"] is not None:
        raise Refusal("no_python", f"{python}: {got['error']} {got['stderr']}".strip())
    if got["exit"] != 0:
        raise Refusal("does_not_compile", got["stderr"].strip()[-2000:])


def _back_up(path: str, now: str) -> bool:
    """Keeps the original beside the file, unless it is kept already.

    A backup whose file was changed by somebody else since we wrote it (an upgrade of the package)
    is the original of another file; it is replaced, or a restore would bring the old version back.
    The backup is a hard link where possible: then restoring gives back owner, times and link type
    too, and a package cache that shares the inode is not written to.
    """
    note = folders.read_object(path + NOTE)
    if os.path.lexists(path + BACKUP):
        if note is not None and note.get("written_sha256") == now:
            return False
        if digest(path + BACKUP) == now:
            return False
        os.unlink(path + BACKUP)
    try:
        os.link(path, path + BACKUP, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(path, path + BACKUP, follow_symlinks=False)
    return True


def _restore(asked: dict[str, Any]) -> dict[str, Any]:
    """Puts the original back; safe to repeat. Refuses ``changed`` if others wrote since."""
    path = asked["path"]
    note = folders.read_object(path + NOTE)
    if not os.path.lexists(path + BACKUP):
        folders.forget(path + NOTE)
        return {"path": path, "restored": False, "had_backup": False, "sha256": digest(path)}
    now = digest(path)
    known = (None, *(note.values() if note else (now,)))
    if now not in known:
        raise Refusal("changed", f"{path} was changed by somebody else since", sha256=now)
    os.rename(path + BACKUP, path)
    # Renaming one link of an inode onto another does nothing at all (rename(2)).
    folders.forget(path + BACKUP)
    folders.forget(path + NOTE)
    return {"path": path, "restored": True, "had_backup": True, "sha256": digest(path)}


def _clear_pycache(asked: dict[str, Any]) -> dict[str, Any]:
    """Removes the bytecode of one module, of every Python version; says which files."""
    folder, name = os.path.split(asked["path"])
    stem = glob.escape(name.removesuffix(".py"))
    pattern = os.path.join(glob.escape(os.path.join(folder, "__pycache__")), f"{stem}.*.pyc")
    removed = [path for path in sorted(glob.glob(pattern)) if folders.forget(path)]
    return {"path": asked["path"], "removed": removed}


def _locate(asked: dict[str, Any]) -> dict[str, Any]:
    """Finds and reads a module's file without importing its package, which would load torch."""
    argv = [asked["python"], "-c", _LOCATE, asked["package"], asked["relative"]]
    got = commands.run(argv, PYTHON_TIMEOUT_S)
    if got["error"] is not None or got["exit"] != 0:
        message = f"{asked['python']}: {got['error'] or got['stderr'].strip()[-500:]}"
        raise Refusal("no_python", message)
    found = folders.loads_last_line(got["stdout"])
    path = found["path"]
    source = _whole(path) if path else None
    return {
        "path": path,
        "exists": source is not None,
        "version": found["version"],
        "source": None if source is None else base64.b64encode(source).decode("ascii"),
    }


def _whole(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _head(asked: dict[str, Any]) -> dict[str, Any]:
    """The beginning of a file, of weights that are too large to fetch whole; and its size."""
    path, limit = asked["path"], min(int(asked["bytes"]), MOST_HEAD_BYTES)
    offset = int(asked.get("offset", 0))
    try:
        with open(path, "rb") as source:
            source.seek(offset)
            data = source.read(limit)
            size = os.fstat(source.fileno()).st_size
    except FileNotFoundError:
        return {"path": path, "exists": False, "size": None, "data": ""}
    return {
        "path": path,
        "exists": True,
        "size": size,
        "data": base64.b64encode(data).decode("ascii"),
    }


def _list(asked: dict[str, Any]) -> dict[str, Any]:
    """The plain files of a folder, with their sizes; none where there is no such folder."""
    path = asked["path"]
    try:
        entries = [entry for entry in os.scandir(path) if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        entries = []
    return {"path": path, "files": {entry.name: entry.stat().st_size for entry in entries}}


def _folder(asked: dict[str, Any]) -> dict[str, Any]:
    """The files directly in a model folder, with their sizes, and what tells it from others."""
    path = asked["path"]
    try:
        with os.scandir(path) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {"path": path, "exists": False, "files": {}, "content": None}
    return {"path": path, "exists": True, "files": sizes, "content": content.digest(path)}


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "sha256": _sha256,
    "write": _write,
    "restore": _restore,
    "clear_pycache": _clear_pycache,
    "locate": _locate,
    "head": _head,
    "list": _list,
    "folder": _folder,
}
"""What ``file`` can do."""
