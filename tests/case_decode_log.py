"""Cases of the kind decode-log: what statistics lines add up to, against what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.decode_log import read_decode_log
from tasks.decode_summary import DecodeSetting
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path


def decode_log(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    setting = DecodeSetting(
        version=given.get("version"),
        num_draft_tokens=given.get("num_draft_tokens"),
        num_speculative_tokens=given.get("num_speculative_tokens"),
        topk=given.get("topk"),
        draft_context=given.get("draft_max_position_embeddings"),
        busy_before=given.get("server_was_busy_before", False),
    )
    log = the_file(folder, "server.log").read_bytes()
    return read_decode_log(log, setting).model_dump(mode="json")
