"""Under which names engines tell the speculation counts of one request.

SGLang renamed them twice: 0.5.11 and again 0.5.12, which kept the names of 0.5.11 beside its own;
0.5.23 has the newest only. Newest first: where several are present, the newest is read and a
difference is noted. Definitions are the same in all of them (read in the wheels of 0.5.8, 0.5.9,
0.5.11, 0.5.12 and 0.5.23; which release has which name stands in configs/engines). The last of
each is vLLM's, 0.33 with ``--per-request-spec-decode-metrics``.

Not read: ``spec_accept_length``, which is completion tokens / verify steps and so counts the token
that the prefill sampled (3.00 instead of 2.75 for a request of twelve tokens).
"""

from __future__ import annotations

ACCEPTED_NAMES = (
    "spec_num_correct_drafts",
    "spec_accepted_drafts",
    "spec_accept_token_num",
    "num_accepted_draft_tokens",
)
PROPOSED_NAMES = (
    "spec_num_proposed_drafts",
    "spec_proposed_drafts",
    "spec_draft_token_num",
    "num_draft_tokens",
)
HISTOGRAM_NAMES = (
    "spec_correct_drafts_histogram",
    "spec_accept_histogram",
    "acceptance_histogram",
)
STEP_NAMES = ("spec_verify_ct", "num_spec_steps")
