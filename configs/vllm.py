"""vLLM's words for a server with EAGLE-3, and the command that they become."""

from __future__ import annotations

import json
from typing import Literal, Self

from pydantic import model_validator

from configs.names import Count, Text, Whole
from configs.problems import WrongKeyError
from configs.values import Value


class VllmSpeculation(Value):
    """What vLLM takes as ``--speculative-config`` (0.33.0 config/speculative.py)."""

    method: Literal["eagle3", "eagle", "mtp", "ngram", "draft_model"] = "eagle3"
    model: Text | None = None
    """Folder of the drafter on the host."""
    num_speculative_tokens: Count
    """Drafts per verify step, without the bonus token: SGLang's num_steps in a chain."""

    @model_validator(mode="after")
    def _drafter_is_named(self) -> Self:
        if self.model is None and self.method in {"eagle3", "eagle", "draft_model"}:
            raise WrongKeyError("model", f"is missing: {self.method} needs a drafter's folder")
        return self

    def text(self) -> str:
        """The JSON, which is one argument; quoting it for a shell is the shell's business."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


class VllmServer(Value):
    """One server of vLLM."""

    kind: Literal["vllm"] = "vllm"
    model: Text
    """Folder of the target on the host."""
    port: Whole
    tensor_parallel_size: Count = 1
    max_num_seqs: Count | None = None
    """Requests in flight at most (SGLang's max-running-requests)."""
    speculation: VllmSpeculation | None = None

    def argv(self) -> list[str]:
        """The command, each argument an element of its own."""
        words = ["vllm", "serve", self.model, "--port", str(self.port)]
        words += ["--tensor-parallel-size", str(self.tensor_parallel_size)]
        if self.max_num_seqs is not None:
            words += ["--max-num-seqs", str(self.max_num_seqs)]
        if self.speculation is not None:
            words += ["--speculative-config", self.speculation.text()]
        return words
