"""Two pretend hosts that serve one model together, and sweeps on them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from configs.read import to_yaml
from configs.vllm import Vllm
from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run
from infra.connect import connect
from infra.rehearsal import hosting
from infra.store import Store
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from flows.outcome import Outcome
    from tests.sweeping import Command, Ground

NAMES = ("node0", "node1")


def joint(asked: Sweep, ranks: int = 16) -> Sweep:
    """A small sweep over both nodes, each with half of the ranks."""
    engine = asked.engine
    flag = "tp-size" if engine.kind == "sglang" else "tensor-parallel-size"
    return asked.model_copy(
        update={
            "hosts": (NAMES,),
            "engine": engine.model_copy(update={"flags": {**engine.flags, flag: ranks}}),
        }
    )


def joint_vllm(asked: Sweep) -> Sweep:
    """The same over both nodes with vLLM, whose flags have other names."""
    flags = {"tensor-parallel-size": 16, "max-num-seqs": 64}
    engine = Vllm(model=asked.engine.model, flags=flags)
    return asked.model_copy(update={"hosts": (NAMES,), "engine": engine, "patches": ()})


class Two:
    """Two pretend hosts, and the folder from which they are swept."""

    def __init__(self, place: Path, grounds: tuple[Ground, Ground]) -> None:
        self.place = place
        self.grounds = grounds
        self.lead, self.peer = grounds
        self.said: list[str] = []
        self.failed_at: dict[str, dict[str, float]] = {}
        """Trial -> stage -> when it failed first."""

    @property
    def runs(self) -> Store:
        """Everything recorded here."""
        return Store(self.place / "runs")

    def host_files(self, **changed: dict[str, Any]) -> str:
        """Writes both host files; returns the place as a command line names it.

        Args:
            changed: Node -> what is changed in its file.
        """
        folder = self.place / "configs" / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, ground in zip(NAMES, self.grounds, strict=True):
            known = {"name": name, "address": "127.0.0.1", **changed.get(name, {})}
            path = folder / f"{name}.yaml"
            path.write_text(to_yaml(ground.host.model_copy(update=known)))
            paths.append(str(path))
        return "+".join(paths)

    def run(
        self,
        asked: Sweep,
        *,
        fresh: bool = True,
        at: Callable[[str], None] = lambda _text: None,
        **changed: dict[str, Any],
    ) -> Outcome:
        """Runs a sweep in this process; ``at`` hears everything that is said."""
        question = pose(asked, self.host_files(**changed))
        self.said.clear()
        self.failed_at.clear()

        def say(text: str) -> None:
            self.said.append(text)
            at(text)

        hands = Hands(
            connect=lambda spec: connect(spec, patience_s=10, note=say),
            runner=lambda trial: sweeping.Noting(say, self.failed_at.setdefault(trial, {})),
            tracker=None,
            say=say,
        )
        with open_run(self.runs, question, fresh=fresh) as folder:
            return Conductor(question, folder, hands).conduct()

    def command_of(self, asked: Sweep, **changed: dict[str, Any]) -> Command:
        """`eagle3-sweep run` of a sweep, as a process of its own."""
        self.host_files(**changed)
        folder = self.place / "configs" / "sweeps"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{asked.name}.yaml"
        path.write_text(to_yaml(asked))
        return sweeping.Command(self.lead, ("run", str(path)), {})

    def attempt(self, name: str) -> tuple[Path, Path]:
        """The folders on the hosts of the attempt in flight."""
        first = self.lead.attempt(name)
        return first, self.peer.root / "trials" / f"{first.name}.{NAMES[1]}"

    def empty(self) -> bool:
        """Whether nothing of ours runs on either host."""
        return all(ground.empty() for ground in self.grounds)


@contextmanager
def two(place: Path, **changed: Any) -> Iterator[Two]:
    """Two quick pretend hosts that listen, swept from one folder."""
    settings: dict[str, Any] = {"time_scale": sweeping.TIME_SCALE, "start_s": 0.4, **changed}
    first, second = (rehearsing.build(place / name, **settings) for name in NAMES)
    with hosting.serving(first, name="node0") as one, hosting.serving(second, name="node1") as two:
        scale = settings["time_scale"]
        yield Two(place, (sweeping.Ground(place, one, scale), sweeping.Ground(place, two, scale)))
