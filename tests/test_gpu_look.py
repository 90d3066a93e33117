"""A look at the GPUs: who is a stranger there, and who is not."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.gpu_look import GpuLook, arrivals, read_look

CARDS = "0, GPU-a, H200, 580, 100, 200, 97, 341.27, 2377, 3090, 61, 0x0000000000000020\n"
OURS = "night-0001.b01-base.a1"


def process(pid: int, ppid: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "ppid": ppid,
        "pgid": pid,
        "sid": pid,
        "uid": 1000,
        "user": "ann",
        "state": "S",
        "start_ticks": 10,
        "comm": "python3",
        "marker": None,
        **fields,
    }


def said(stdout: str = "", **fields: Any) -> dict[str, Any]:
    """The answer of a program on the host."""
    return {"exit": 0, "stdout": stdout, "stderr": "", "error": None, **fields}


def look(apps: str, *processes: dict[str, Any], cards: str = CARDS) -> GpuLook:
    raw = {"gpus": said(cards), "apps": said(apps), "processes": list(processes)}
    seen = read_look(raw, marker=OURS, uid=1000, user="ann")
    assert seen is not None
    return seen


def test_an_agent_that_did_not_look_says_nothing():
    assert read_look(None, marker=OURS, uid=1000, user="ann") is None
    assert arrivals([("load c1", None)]) == ()


@pytest.mark.parametrize(
    "processes",
    [
        [process(7, marker=OURS)],
        # A worker that lost its environment, below the engine or in its session.
        [process(7, ppid=6), process(6, marker=OURS)],
        [process(7, sid=6), process(6, marker=OURS)],
    ],
)
def test_what_the_trial_started_is_no_stranger(processes):
    assert look("GPU-a, 7, python3, 90\n", *processes).strangers == ()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (process(8, uid=1001, user="eve"), "python3 (pid 8, user eve) on GPU 0"),
        # Ours by user, but not the trial's: it disturbs as much.
        (process(8), "python3 (pid 8, user ann) on GPU 0"),
        (process(8, marker="night-0001.b01-base.a2"), "python3 (pid 8, user ann) on GPU 0"),
        # Somebody else's process can wear any marker.
        (process(8, uid=1001, user="eve", marker=OURS), "python3 (pid 8, user eve) on GPU 0"),
        (process(8, user=None, uid=1002), "python3 (pid 8, user unknown) on GPU 0"),
    ],
)
def test_everybody_else_is(other, words):
    apps = "GPU-a, 7, python3, 90\nGPU-a, 8, python3, 90\n"
    seen = look(apps, process(7, marker=OURS), other)
    assert arrivals([("load c1", seen)]) == (f"{words}, at load c1",)


def test_a_stranger_on_several_cards_is_one():
    cards = CARDS + CARDS.replace("0, GPU-a", "1, GPU-b")
    apps = "GPU-b, 8, x, 90\nGPU-a, 8, x, 90\nGPU-c, 8, x, 90\n"
    seen = look(apps, process(8), cards=cards)
    (words,) = arrivals([("load c1", None), ("load c8", seen), ("load c64", seen)])
    assert words.endswith("on GPU 0, 1, GPU-c, at load c8, load c64")


def test_processes_that_nobody_here_knows_are_strangers_if_they_came_later():
    """In a container, nvidia-smi may name the engine itself by numbers of the host."""
    first = look("GPU-a, 70001, [Not Found], 90\n")
    assert arrivals([("load c1", first), ("load c8", first)]) == ()
    later = look("GPU-a, 70001, [Not Found], 90\nGPU-a, 70002, [Not Found], 90\n")
    assert arrivals([("load c1", first), ("load c8", later)]) == (
        "pid 70002, in no process list here, on GPU 0, at load c8",
    )


@pytest.mark.parametrize(
    ("cards", "apps", "trouble"),
    [
        (said(exit=None, error="timeout"), said(), "nvidia-smi: timeout"),
        (said(exit=None, error="not_found"), said(exit=None, error="not_found"), "not_found"),
        (said(CARDS), said(exit=None, error="timeout"), "nvidia-smi: timeout"),
        (said(CARDS.replace("0020", "0001")), said(), "every GPU was idle"),
        (said("Failed to initialize NVML: Unknown Error", exit=255), said(), "Failed to init"),
    ],
)
def test_a_driver_that_does_not_answer_is_no_clean_look(cards, apps, trouble):
    seen = read_look(
        {"gpus": cards, "apps": apps, "processes": []}, marker=OURS, uid=1000, user="ann"
    )
    assert seen is not None
    assert trouble in (seen.trouble or "")
    assert seen.strangers == ()
    assert look("").trouble is None


def test_the_cards_are_read_as_they_are_under_load():
    (card,) = look("").gpus
    assert (card.index, card.clock_reasons, card.temperature_c) == (0, 0x20, 61)
