"""Several equal pretend hosts, swept from one folder."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from configs.read import to_yaml
from infra.rehearsal import hosting
from infra.store import Store
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from configs.sweep import Sweep
    from tests.sweeping import Ground


class Several:
    """The hosts by name, each with what can be looked at there."""

    def __init__(self, place: Path, grounds: dict[str, Ground]) -> None:
        self.place = place
        self.grounds = grounds

    @property
    def runs(self) -> Store:
        """Everything recorded here."""
        return Store(self.place / "runs")

    def host_files(self, unlike: Mapping[str, str] | None = None, **changed: Any) -> str:
        """Writes the host files; returns them as `host` of a deployment names them.

        Args:
            unlike: Host -> its host class, where that is not the one of all.
            changed: In every file.
        """
        classes = {name: {"host_class": other} for name, other in (unlike or {}).items()}
        folder = self.place / "configs" / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        for name, ground in self.grounds.items():
            host = ground.host.model_copy(update={"name": name, **changed, **classes.get(name, {})})
            (folder / f"{name}.yaml").write_text(to_yaml(host))
        return ",".join(str(folder / f"{name}.yaml") for name in self.grounds)

    def sweep_file(self, asked: Sweep) -> Path:
        """Writes the sweep's file; returns its path."""
        return next(iter(self.grounds.values())).sweep_file(asked)

    def empty(self) -> bool:
        """Whether nothing of ours runs on any of them."""
        return all(ground.empty() for ground in self.grounds.values())


@contextmanager
def several(place: Path, count: int, **changed: Any) -> Iterator[Several]:
    """Pretend hosts host-1, host-2 ... that listen."""
    settings: dict[str, Any] = {"time_scale": sweeping.TIME_SCALE, "start_s": 0.4, **changed}
    with ExitStack() as open_ones:
        grounds = {}
        for name in (f"host-{number}" for number in range(1, count + 1)):
            built = rehearsing.build(place / name, **settings)
            ready = open_ones.enter_context(hosting.serving(built, name=name))
            grounds[name] = sweeping.Ground(place, ready, settings["time_scale"])
        yield Several(place, grounds)
