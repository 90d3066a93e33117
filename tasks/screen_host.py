"""What a screen asks of a host: the target's config, the timed all-reduces, the proof of a start."""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Any, Final

from configs.layers import reference_levels
from configs.plan import arm_env
from infra.errors import AgentBroken
from infra.store import write_json, write_text
from tasks.factor_effect import engine_writes
from tasks.launch import UNSET, engine_env
from tasks.nccl_log import NcclLog, read_nccl_log
from tasks.screen_sizes import SizesUnknownError, decode_sizes
from tasks.tear_down import tear_down
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from configs.sweep import Sweep
    from tasks.screen_sizes import Sizes
    from tasks.venue import Site

# What NCCL is asked to write; a level that sets one of these itself has its way.
DEBUG: Final = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING"}
PREFIX: Final = "nccl."
PASSES: Final = 2
ROUNDS: Final = 8
SIZE_S: Final = 0.02
LEVEL_S: Final = 120.0
_AT_ONCE: Final = 16  # processes that live side by side, each with a context on its GPU
_MOST_FILES: Final = 64
_MOST_BYTES: Final = 2 << 20
_RANKS: Final = "sglang::scheduler"
_INVALID: Final = "model_config_invalid"


def sizes_on_host(site: Site) -> Sizes:
    """The sizes of the sweep's decode steps, from the target's config.json on the host.

    Raises:
        StageFailedError: ``model_config_invalid``: there is none, or it names no hidden size.
    """
    path = posixpath.join(site.agent.from_cwd(site.engine.model), "config.json")
    try:
        config = json.loads(site.agent.get(path))
        if not isinstance(config, dict):
            raise failed("collectives", _INVALID, f"{path} is no object")
        return decode_sizes(site.sweep, config)
    except FileNotFoundError as error:
        raise failed("collectives", _INVALID, f"{path} is not there") from error
    except (ValueError, SizesUnknownError) as error:
        raise failed("collectives", _INVALID, f"{path}: {error}") from error


def level_env(sweep: Sweep, factor: str, level: str) -> dict[str, str]:
    """What a sweep asks for under a level, with the baseline arm and all other references."""
    levels = {**reference_levels(sweep), factor: level}
    return arm_env(sweep, sweep.baseline, levels)


def time_levels(site: Site, factor: str, sizes: Sizes, tp: int) -> dict[str, Any]:
    """Runs all-reduce under every level in the engine's Python, and leaves nothing behind.

    Returns:
        The job's result; one of a job that broke has ``available`` false, and why.
    """
    sweep, host = site.sweep, site.host
    levels = []
    for level in sweep.factors[factor]:
        chosen = {**reference_levels(sweep), factor: level}
        env = engine_env(sweep, host, sweep.baseline, chosen)
        levels.append({"name": level, "env": {**DEBUG, **engine_writes(env)}})
    request = {
        "world": tp,
        "dtype": sizes.dtype,
        "elements": list(sizes.elements),
        "levels": levels,
        "passes": PASSES,
        "rounds": ROUNDS,
        "together": max(1, _AT_ONCE // tp),
        "size_s": SIZE_S,
        "level_s": LEVEL_S,
        "unset": list(UNSET),
    }
    try:
        result = site.agent.job(
            site.folder,
            "collectives",
            "collectives",
            request,
            python=site.python,
            timeout_s=PASSES * (len(levels) * 60.0 + LEVEL_S) + 60.0,
            holder=site.holder,
        )
    except AgentBroken as error:
        result = {"ok": False, "message": str(error)}
    finally:
        tear_down(site, None, grace_s=0.0)
    if not result.get("ok"):
        result = {"available": False, "message": site.mask.text(str(result.get("message")))}
    write_json(site.keep.path / "collectives.json", result)
    return result


def timed_logs(site: Site, result: Mapping[str, Any]) -> dict[str, NcclLog]:
    """What NCCL said in the timed processes: level -> its words, of those that wrote any."""
    found: dict[str, NcclLog] = {}
    for level, told in result.get("levels", {}).items():
        paths = [one["path"] for one in told.get("debug", ()) if one.get("path")]
        texts = {posixpath.basename(path): _read(site, path) for path in paths}
        if any(texts.values()):
            found[level] = _kept(site, f"timed-{level}", texts)
    return found


def debug_env(folder: str) -> dict[str, str]:
    """What makes NCCL write into a file of its own for each process, in this folder."""
    return {**DEBUG, "NCCL_DEBUG_FILE": posixpath.join(folder, f"{PREFIX}%h.%p")}


def start_log(site: Site) -> NcclLog | None:
    """What NCCL said in the engine's processes; None where it wrote nothing."""
    listed = site.agent.call("file", op="list", path=site.folder)["files"]
    names = sorted(name for name in listed if name.startswith(PREFIX))[:_MOST_FILES]
    texts = {name: _read(site, posixpath.join(site.folder, name)) for name in names}
    return _kept(site, "start", texts) if any(texts.values()) else None


def look_inside(site: Site, names: Sequence[str]) -> dict[str, str | None] | None:
    """The variables in the engine's own ranks; None where no rank can be read."""
    if not names:
        return None
    told = site.agent.call("given", dir=site.folder, names=list(names))["processes"]
    ranks = [one for one in told if one["title"].startswith(_RANKS)]
    return dict(ranks[0]["values"]) if ranks else None


def start_lines(site: Site) -> list[str]:
    """The kept log of the attempt's start."""
    log = site.keep.path / "server.log"
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def _read(site: Site, path: str) -> str:
    got = site.agent.head(path, _MOST_BYTES)
    return got[0].decode(errors="replace") if got else ""


def _kept(site: Site, name: str, texts: Mapping[str, str]) -> NcclLog:
    """Keeps the texts in the run folder, and reads them."""
    for file, text in texts.items():
        write_text(site.keep.path / "nccl" / name / f"{file}.txt", site.mask.text(text))
    return read_nccl_log(_lines(texts.values()))


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from text.splitlines()
