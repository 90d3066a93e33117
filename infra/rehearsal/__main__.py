"""``python -m infra.rehearsal``: build, serve and reset a pretend GPU host."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from infra.rehearsal import knobs, sshd, tree


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m infra.rehearsal", description=__doc__)
    verbs = made.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("serve", "listen on loopback until SIGTERM; writes ready.json"),
        ("build", "lay the file tree only"),
        ("reset", "restore the pristine tree: unpatched files, no planted memory, no faults"),
    ):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("--folder", type=Path, required=True)
        if verb != "reset":
            sub.add_argument("--time-scale", type=float, help="times faster than the truth")
        if verb == "serve":
            sub.add_argument("--port", type=int, default=0)
            sub.add_argument("--name", default="rehearsal")
            sub.add_argument("--delay-ms", type=float, default=0.0, help="one-way SSH delay")
    return made


def main(arguments: list[str]) -> int:
    """Run one verb."""
    asked = _parser().parse_args(arguments)
    folder = asked.folder.resolve()
    if asked.verb == "reset":
        tree.reset(folder)
        return 0
    if asked.verb == "build" or not (folder / "home" / "site").exists():
        tree.build(folder)
    if asked.time_scale is not None:
        knobs.write(folder, replace(knobs.read(folder), time_scale=asked.time_scale))
    if asked.verb == "serve":
        asyncio.run(sshd.serve(folder, asked.port, asked.name, asked.delay_ms / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
