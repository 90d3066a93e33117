"""Runs a program of the host for its output, and never waits longer than it was told to."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Optional

_LET_GO_S = 0.5


def run(argv: list[str], timeout_s: float, env: Optional[dict[str, str]] = None) -> dict[str, Any]:
    """Runs a program with stdin closed.

    A program that hangs in the kernel (``nvidia-smi`` on a lost GPU) cannot be collected even
    after SIGKILL; it is left behind, and the answer says that the time ran out.

    Returns:
        ``argv``, ``exit`` (None if it did not start or did not end), ``stdout``, ``stderr`` as
        text, and ``error``: None, ``not_found``, ``not_started`` or ``timeout``.
    """
    answer: dict[str, Any] = {"argv": argv, "exit": None, "stdout": "", "stderr": "", "error": None}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except FileNotFoundError:
        return {**answer, "error": "not_found"}
    except OSError as fault:
        return {**answer, "error": "not_started", "stderr": str(fault)}
    try:
        out, err = process.communicate(timeout=timeout_s)
        answer["exit"] = process.returncode
    except subprocess.TimeoutExpired:
        answer["error"] = "timeout"
        process.kill()
        out, err = _last_words(process)
    return {
        **answer,
        "stdout": out.decode("utf-8", "replace"),
        "stderr": err.decode("utf-8", "replace"),
    }


def _last_words(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=_LET_GO_S)
    except subprocess.TimeoutExpired as late:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return late.stdout or b"", late.stderr or b""


def at_once(*questions: Callable[[], Any]) -> list[Any]:
    """Asks several programs side by side; the answers come in the order of the questions.

    Raises:
        Exception: What the first question that failed has raised.
    """
    answers: dict[int, Any] = {}
    faults: dict[int, Exception] = {}

    def ask(number: int, question: Callable[[], Any]) -> None:
        try:
            answers[number] = question()
        except Exception as fault:
            faults[number] = fault

    threads = [threading.Thread(target=ask, args=item) for item in enumerate(questions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in sorted(faults):
        raise faults[number]
    return [answers[number] for number in range(len(questions))]
