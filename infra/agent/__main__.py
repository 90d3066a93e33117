"""``agent.pyz COMMAND '{JSON}'`` prints one JSON object on one line.

``agent.pyz serve`` stays, and does the same for each line ``["COMMAND", {JSON}]`` of its stdin.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, NamedTuple

from infra.agent.refusal import Refusal
from infra.agent.serve import serve

REFUSED = 10
"""Exit code of a foreseen refusal."""


class Command(NamedTuple):
    """Where a command lives and which keys its request may have.

    The module is loaded when the command is called: a poll should not pay for what it does not
    use, since a zipped program is compiled anew in every call.
    """

    module: str
    function: str
    needs: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()


def _keys(words: str) -> frozenset[str]:
    return frozenset(words.split())


COMMANDS = {
    "hello": Command("facts", "hello", takes=_keys("root")),
    "claim": Command("claim", "claim", _keys("root holder lease_s"), _keys("note")),
    "held": Command("claim", "held", _keys("root")),
    "release": Command("claim", "release", _keys("root holder")),
    "supervise": Command("supervise", "supervise", _keys("dir root")),
    "wait": Command(
        "wait",
        "wait",
        _keys("dir offset"),
        _keys("max_bytes timeout_s quiet_s lease_s claim job seen start"),
    ),
    "start": Command("jobs", "start", _keys("dir name job"), _keys("python request")),
    "run-job": Command("work", "run_job", _keys("dir name job")),
    "rank": Command(
        "collective_rank", "rank", _keys("rank world dtype elements store answers timeout_s")
    ),
    "http": Command(
        "web", "http_call", _keys("port method path"), _keys("body timeout_s headers_path")
    ),
    "given": Command("given", "given", _keys("dir names")),
    "http-calls": Command(
        "web", "http_calls", _keys("port requests"), _keys("timeout_s headers_path")
    ),
    "port": Command("ports", "ports", takes=_keys("ports pick")),
    "put-back": Command("put_back", "answer", _keys("ledger")),
    "file": Command(
        "files",
        "file",
        _keys("op"),
        _keys("path content_path expect_sha256 python package relative bytes offset ledger"),
    ),
}


def answer(words: list[str]) -> dict[str, Any]:
    """Carries out one command line.

    Raises:
        Refusal: ``bad_request`` for anything that is not a command with its keys, or whatever the
            command foresees.
    """
    if len(words) not in (1, 2) or words[0] not in COMMANDS:
        raise Refusal("bad_request", f"expected one of {', '.join(COMMANDS)} and a JSON object")
    command = COMMANDS[words[0]]
    try:
        asked = json.loads(words[1]) if len(words) == 2 else {}
    except ValueError as fault:
        raise Refusal("bad_request", f"the request is not JSON: {fault}") from fault
    if not isinstance(asked, dict):
        raise Refusal("bad_request", "the request is not a JSON object")
    missing = command.needs - asked.keys()
    unknown = asked.keys() - command.needs - command.takes
    if missing or unknown:
        message = f"{words[0]}: missing {sorted(missing)}, unknown {sorted(unknown)}"
        raise Refusal("bad_request", message)
    module = importlib.import_module(f"infra.agent.{command.module}")
    return {"ok": True, **getattr(module, command.function)(asked)}


def carry_out(words: list[str]) -> int:
    """Prints the answer to a command line and returns the exit code."""
    try:
        value, code = answer(words), 0
    except Refusal as refusal:
        value, code = refusal.answer(), REFUSED
    print(json.dumps(value, allow_nan=False), flush=True)
    return code


def main() -> int:
    """One command, or those that come on stdin."""
    if sys.argv[1:] != ["serve"]:
        return carry_out(sys.argv[1:])
    for command in COMMANDS.values():
        importlib.import_module(f"infra.agent.{command.module}")
    return serve(carry_out)


if __name__ == "__main__":
    sys.exit(main())
