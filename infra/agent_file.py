"""Builds the agent's one file, the same bytes from the same sources."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import NamedTuple

_SOURCES = Path(__file__).parent / "agent"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = b"import sys\n\nfrom infra.agent.__main__ import main\n\nsys.exit(main())\n"


class AgentFile(NamedTuple):
    """The program that goes to the host."""

    name: str
    """File name, with the first 12 hex digits of the content's hash."""
    sha256: str
    """Hex digest of the bytes."""
    data: bytes
    """A zip archive that Python runs (``python3 FILE COMMAND JSON``)."""


def agent_file() -> AgentFile:
    """Packs infra/agent into one runnable archive.

    Times, order and attributes are fixed and nothing is compressed, so that a host that has the
    file of that name has that program, whatever machine packed it.
    """
    members = {"__main__.py": _MAIN, "infra/__init__.py": b""}
    for path in _SOURCES.glob("*.py"):
        members[f"infra/agent/{path.name}"] = path.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for name, data in sorted(members.items()):
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3
            member.external_attr = 0o100644 << 16
            packed.writestr(member, data)
    data = archive.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    return AgentFile(f"agent-{sha256[:12]}.pyz", sha256, data)
