"""`python -m tests.week`: plays the week and judges it from outside."""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.week.judge import judged, nights
from tests.week.page import write
from tests.week.quick import Week
from tests.week.sightings import Sightings
from tests.week.site import WORKERS, site
from tests.week.story import Story

_SWEEP = "week"
_LEAD_S = 75
"""From now to the first night: to deploy, and to start two workers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.week", description=__doc__)
    parser.add_argument("--nights", type=int, default=7)
    parser.add_argument("--apart", type=int, default=150, help="seconds from night to night")
    parser.add_argument("--keep", type=Path, help="a folder that stays, for everything")
    asked = parser.parse_args()

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="eagle3-week-") as made:
        place = (asked.keep or Path(made)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        with site(place, _SWEEP, say) as there:
            first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=_LEAD_S)
            week = Week(_SWEEP, asked.nights, first, asked.apart)
            there.deploy(week)
            for worker in WORKERS:
                there.start(worker)
            homes = {name: ground.ready.home for name, ground in there.grounds.items()}
            with Sightings(homes) as seen:
                story = Story(there, week, say)
                story.play()
                story.settled()
            said = list(judged(there, story, week, seen))
            for one in said:
                say(f"{'held' if one.holds else 'BROKEN'}: {one.what}: {one.found}")
            for night in nights(story, week):
                say(str(night))
            say(f"{write(week, there, story, nights(story, week), said)} is written")
    return 0 if all(one.holds for one in said) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except pytest.skip.Exception as why:
        sys.stdout.write(f"not played: {why}\n")
