"""Launches the real engine on each broken drafter, and holds what it does against the prediction.

    python3 tests/gpu/broken_drafters.py /tmp/m/good /tmp/broken
    python3 tests/gpu/try_drafters.py --target /tmp/m/target --good /tmp/m/good --broken /tmp/broken \
        -- --mem-fraction-static 0.3 --attention-backend triton --cuda-graph-max-bs 16

What stands behind ``--`` goes to every server. One server after the other; each is ended by its
own process group. Exit code 0: all as predicted; 1: some were not (a fault of ours, or news).
Standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.gpu.broken_drafters import BREAKS, CUT_OFF

READY = "The server is fired up and ready to roll!"
_STEPS = 3
_PROMPTS = 8
_TOKENS = 96
_NOTHING = 1.1
"""At or below this accept length nothing worth the name is accepted."""
_AS_GOOD = 0.97
"""Of the good drafter's accept length: from here on a broken one works as well."""


class Seen(NamedTuple):
    """What an engine did with one drafter."""

    outcome: str
    accept_length: float | None
    exit_code: int | None
    seconds: float
    last_error: str


def main(arguments: list[str]) -> int:
    """As the head comment says."""
    parser = argparse.ArgumentParser(prog="try_drafters.py")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--target", required=True)
    parser.add_argument("--good", required=True)
    parser.add_argument("--broken", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of broken drafters; all")
    parser.add_argument("--out", type=Path, default=Path("tried"))
    parser.add_argument("--start-s", type=float, default=240.0)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    asked = parser.parse_args(arguments[:split])
    asked.flags = arguments[split + 1 :]
    asked.out.mkdir(parents=True, exist_ok=True)
    # A time limit ends this script, and with it the server that it has up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = attempt(asked, asked.good, None)
    print(f"good: {good.outcome}, accept length {good.accept_length}")
    if good.accept_length is None:
        print(good.last_error)
        return 2
    predicted = {one.name: one.outcome for one in BREAKS} | {CUT_OFF: "dies_loading"}
    rows, wrong = [], 0
    for name, expected in predicted.items():
        if asked.only and name not in asked.only:
            continue
        seen = attempt(asked, str(asked.broken / name), good.accept_length)
        wrong += seen.outcome != expected
        rows.append({"drafter": name, "predicted": expected, **seen._asdict()})
        mark = "as predicted" if seen.outcome == expected else f"NOT {expected}"
        print(f"{name}: {seen.outcome} ({mark}); {seen.accept_length}; {seen.last_error[:120]}")
        (asked.out / "tried.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows) - wrong} of {len(rows)} as predicted")
    return 1 if wrong else 0


def attempt(asked: Any, drafter: str, good: float | None) -> Seen:
    """One server from launch to end."""
    port = free_port()
    log = asked.out / f"{Path(drafter).name}.log"
    command = [asked.python, "-m", "sglang.launch_server", "--model-path", asked.target]
    command += ["--port", str(port), "--host", "127.0.0.1", *asked.flags]
    command += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", drafter]
    command += ["--speculative-num-steps", str(_STEPS), "--speculative-eagle-topk", "1"]
    command += ["--speculative-num-draft-tokens", str(_STEPS + 1)]
    began = time.monotonic()
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    length = None
    try:
        if wait_ready(server, log, asked.start_s):
            length = drive(port)
        code = server.poll()
        if length is None and code is None:
            code = wait_dead(server, 20.0)
    finally:
        end(server)
    text = log.read_text(errors="replace")
    outcome = judge(text, length, good)
    return Seen(outcome, length, code, round(time.monotonic() - began, 1), last_error(text))


def judge(log: str, length: float | None, good: float | None) -> str:
    """The outcome in a word, from the log and the accept length of the requests."""
    if length is not None:
        if length <= _NOTHING:
            return "accepts_nothing"
        return "works" if good is None or length >= _AS_GOOD * good else "accepts_less"
    if "Application startup complete" in log or READY in log:
        return "dies_drafting"
    begun = [log.rfind(f"Capture {kind} ") for kind in ("draft", "draft extend")]
    return "dies_capturing" if max(begun) >= 0 else "dies_loading"


def last_error(log: str) -> str:
    """The last line of the first traceback."""
    for line in log.splitlines():
        name = line.split(":", 1)[0]
        if name.replace(".", "").isidentifier() and name.endswith(("Error", "Exception")):
            return line
    return ""


def wait_ready(server: subprocess.Popen[bytes], log: Path, within_s: float) -> bool:
    """Whether the server comes up; false as soon as it is dead, or late."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if READY in log.read_text(errors="replace"):
            return True
        if wait_dead(server, 0.5) is not None:
            return False
    return False


def wait_dead(server: subprocess.Popen[bytes], within_s: float) -> int | None:
    """Its exit code, or None while it lives."""
    try:
        return server.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def drive(port: int) -> float | None:
    """Accept length over a few requests; None when one of them is not answered."""
    accepted = steps = 0
    for number in range(_PROMPTS):
        body = {
            "text": f"def step_{number}(values):\n    # Add all values up\n    ",
            "sampling_params": {"temperature": 0, "max_new_tokens": _TOKENS, "ignore_eos": True},
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/generate",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                meta = json.loads(answer.read())["meta_info"]
        except (OSError, ValueError, KeyError):
            return None
        names = ("spec_accept_token_num", "spec_accepted_drafts", "spec_num_correct_drafts")
        accepted += next((meta[name] for name in names if name in meta), 0)
        steps += meta.get("spec_verify_ct", 0)
    return 1 + accepted / steps if steps else None


def end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server's own process group, which nobody else is in."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            break
        if wait_dead(server, 15.0) is not None:
            continue  # once more, for children that outlive it
    server.wait()


def free_port() -> int:
    """A port that nobody has, with room for SGLang's others above it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < 50_000:
            return port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
