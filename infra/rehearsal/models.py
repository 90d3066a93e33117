"""Model folders as the pretend engine reads them: config, tensor names, acceptance."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from infra.rehearsal import truth
from infra.rehearsal.failures import Failure, missing_path, no_model_type

_NEEDED = ("fc.weight", "lm_head.weight", "d2t")
_HEADER_LENGTH_BYTES = 8
KIMI = "KimiK25ForConditionalGeneration"


def config_of(path: str, where: str) -> dict[str, Any]:
    """The ``config.json`` of a model folder.

    Raises:
        Failure: no such folder, no config, or a config that names no model type.
    """
    if not Path(path).is_dir():
        raise Failure(where, missing_path(path))
    try:
        config: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    except (OSError, ValueError):
        raise Failure(where, no_model_type(path)) from None
    if "model_type" not in config:
        raise Failure(where, no_model_type(path))
    return config


def tensors_of(path: str) -> dict[str, list[int]]:
    """Names and shapes of a folder's tensors, from the safetensors headers.

    Raises:
        Failure: a file shorter than its header says.
    """
    found: dict[str, list[int]] = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(_HEADER_LENGTH_BYTES), "little")
            header = json.loads(stream.read(length) or b"{}")
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if file.stat().st_size < _HEADER_LENGTH_BYTES + length + end:
            raise Failure(
                "draft_weights",
                "safetensors_rust.SafetensorError: Error while deserializing header: incomplete "
                "metadata, file not fully covered",
            )
        found.update({name: entry["shape"] for name, entry in header.items()})
    return found


def acceptance(
    algorithm: str | None, drafter: str | None, *, dummy: bool = False
) -> tuple[float, ...]:
    """Acceptance at each position for a drafter folder.

    A folder of a known name has the truth's numbers, any other one those of its
    ``rehearsal.json`` (``{"accept_at": [...]}``), else none. A drafter that lacks a tensor
    serves and accepts nothing, as on a real host, where unmatched names are skipped silently
    (sgl-project/sglang#27829); so does an EAGLE-3 head started as EAGLE, or the other way round,
    and one of random weights (``dummy``).
    """
    if algorithm == "NGRAM":
        return truth.NGRAM
    if algorithm is None or drafter is None or dummy:
        return ()
    folder = Path(drafter)
    told = folder / "rehearsal.json"
    is_head = "eagle3" in str(config_of(drafter, "draft_weights").get("architectures")).lower()
    if is_head is not (algorithm == "EAGLE3"):
        return ()
    if is_head and not set(_NEEDED) <= set(tensors_of(drafter)):
        return ()
    if told.exists():
        return tuple(json.loads(told.read_text())["accept_at"])
    return truth.DRAFTERS.get(folder.name, ())


def check_shapes(drafter: str, config: dict[str, Any], hidden: int) -> None:
    """Fail as 0.5.9 does when the drafter was made for a target of another width.

    Raises:
        Failure: at graph capture of the draft, with a text that misleads.
    """
    made_for = config.get("target_hidden_size", config.get("hidden_size", hidden))
    if made_for != hidden:
        width = tensors_of(drafter).get("fc.weight", [made_for, 3 * made_for])
        raise Failure(
            "draft_graph_capture",
            "Exception: Capture cuda graph failed: mat1 and mat2 shapes cannot be multiplied "
            f"(64x{3 * hidden} and {width[1]}x{width[0]})\nPossible solutions:\n"
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n",
        )


def build_target(config: dict[str, Any], say: Any) -> Any:
    """Import the tree's model file and construct the class, as 0.5.9's registry does.

    Raises:
        Failure: the module cannot be imported (a broken patch), or construction fails.
    """
    architecture = (config.get("architectures") or [KIMI])[0]
    if architecture != KIMI:
        raise Failure(
            "target_weights",
            f"ValueError: Model architectures ['{architecture}'] are not supported for now. "
            f"Supported architectures: dict_keys(['{KIMI}'])",
        )
    name = "sglang.srt.models.kimi_k25"
    try:
        module = importlib.import_module(name)
        entry = module.EntryClass
    except Exception as error:  # the registry catches whatever a model file raises
        sys.modules.pop(name, None)
        say(f"Ignore import error when loading {name}: {error}", "warning")
        raise Failure(
            "target_weights",
            f"ValueError: Model architectures ['{architecture}'] are not supported for now. "
            "Supported architectures: dict_keys(['DeepseekV3ForCausalLM'])",
        ) from error
    classes = entry if isinstance(entry, list) else [entry]
    wanted = next(cls for cls in classes if cls.__name__ == architecture)
    try:
        return wanted(config)
    except Exception as error:
        raise Failure("target_weights", last_line(error)) from error


def last_line(error: BaseException) -> str:
    """An exception as the last lines of a traceback show it."""
    return "".join(traceback.format_exception_only(error)).rstrip("\n")
