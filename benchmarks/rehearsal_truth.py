"""How near a rehearsal run came to the rehearsal's own truth: one line per setting and level.

python benchmarks/rehearsal_truth.py .eagle3/runs/rehearsal/0001
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from configs.probe import rungs_of
from configs.speculation import Speculation
from configs.sweep import Sweep
from infra.rehearsal.forecast import forecast
from infra.rehearsal.truth import DRAFTERS, Arm, chain
from tasks.record import TrialRecord

FIGURES = ("output_tok_s", "user_tok_s", "accept_length")


def arm_of(speculation: Speculation, proto: str = "") -> Arm:
    """What the pretend engine makes of an EAGLE-3 arm, or of one that does not speculate."""
    if speculation.kind == "off":
        return Arm(nccl_proto=proto)
    accept = DRAFTERS[Path(speculation.drafter).name]
    steps, topk, tokens = speculation.num_steps, speculation.topk, speculation.draft_tokens
    return Arm(True, chain(accept, steps, topk, tokens), steps, topk, tokens, proto)


def main(run: Path) -> None:
    sweep = Sweep.model_validate_json((run / "sweep.json").read_bytes())
    found = defaultdict(list)
    for path in sorted(run.glob("trials/*/record.json")):
        record = TrialRecord.model_validate_json(path.read_bytes())
        if record.status != "ok":
            continue
        for measured in record.measurements:
            probe = rungs_of(sweep.probes)[measured.probe]
            wanted = forecast(
                arm_of(
                    sweep.arms[record.arm].speculation, record.environment.get("NCCL_PROTO", "")
                ),
                measured.concurrency,
                probe.sampling.max_new_tokens,
                probe.requests(measured.concurrency),
            )
            key = (record.arm, *record.levels.values(), measured.concurrency)
            found[key].append((measured, wanted))
    print("| setting | users | " + " | ".join(f"{f} (truth, error)" for f in FIGURES) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in FIGURES) + " |")
    worst = dict.fromkeys(FIGURES, 0.0)
    for key in sorted(found, key=str):
        cells = []
        for figure in FIGURES:
            seen = statistics.mean(getattr(m, figure) for m, _ in found[key])
            true = getattr(found[key][0][1], figure)
            error = 100 * (seen / true - 1)
            worst[figure] = max(worst[figure], abs(error), key=abs)
            cells.append(f"{seen:.4g} ({true:.4g}, {error:+.2f} %)")
        print(f"| {'+'.join(map(str, key[:-1]))} | {key[-1]} | " + " | ".join(cells) + " |")
    print("\nlargest error: " + ", ".join(f"{f} {e:.2f} %" for f, e in worst.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
