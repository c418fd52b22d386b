"""Plans beside what came of them: how long records take to each sink, by the account, by the simulator, and measured.

The plant of the examples and an application of the AELS paper are planned, and run with `headwater up` and `headwater
deploy`: sites as processes in namespaces of their own, with the latency and the bandwidth of the net's links. A path is
from a source to a sink; measured is the median of its records. What a window waits for is no part of any of the three: a
result is as old as the moment from which on its window could close, which the source says whose records are there first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.promised.cases import EVERY, aels, plant
from headwater_bench.promised.trial import Trial

NEAR = 0.25
"""How far off an expectation may be, as a share of what was measured."""

_CASES = {"plant": plant, "aels": aels}


def run(
    quick: bool = False, output: Path | None = None, seconds: float | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Plan and run each case, for so many seconds."""
    lasts_s = seconds or (10.0 if quick else 30.0)
    answer: dict[str, Any] = {}
    shaped = []
    for name in only or _CASES:
        with tempfile.TemporaryDirectory(prefix="hw-plan-") as folder:
            case = _CASES[name](Path(folder) / name)
            trial = Trial(case)
            try:
                ages = trial.run(lasts_s)
            finally:
                trial.close()
            shaped.append(trial.is_shaped)
        for path, expected_s in case.expected.items():
            half, most = np.percentile(ages[path], (50, 95)).tolist()
            answer[f"{name}: {path[0]} → {path[1]}"] = {
                "measured_ms": round(half, 2),
                "account_ms": round(1e3 * expected_s, 2),
                "simulated_ms": round(1e3 * case.simulated[path], 2),
                "measured_mean_ms": round(float(ages[path].mean()), 2),
                "measured_p95_ms": round(most, 2),
                "records": len(ages[path]),
                "checkpoint_ms": round(1e3 * case.checkpoint_s, 1),
            }
    answer |= summed(answer) | {"shaped": all(shaped), "every": EVERY, "seconds": lasts_s}
    if output is not None:
        rows = [{"path": path, **row} for path, row in answer.items() if isinstance(row, dict)]
        write_rows(rows, output / "promise-vs-run.csv")
        (output / "promise-vs-run.txt").write_text(table(answer) + "\n")
    return answer


def summed(paths: dict[str, Any]) -> dict[str, float]:
    """Return the share of paths of which both expectations, the account's alone and the simulator's alone came near."""
    near = {
        name: [abs(row[f"{name}_ms"] - row["measured_ms"]) <= NEAR * row["measured_ms"] for row in paths.values()]
        for name in ("account", "simulated")
    }
    both = [a and b for a, b in zip(near["account"], near["simulated"], strict=True)]
    shares = {"within": both, "within_account": near["account"], "within_simulated": near["simulated"]}
    return {name: round(sum(each) / max(1, len(each)), 3) for name, each in shares.items()}


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    keys = ("measured_ms", "account_ms", "simulated_ms", "measured_p95_ms", "records")
    rows = [(path, *(row[key] for key in keys)) for path, row in answer.items() if isinstance(row, dict)]
    lines = text_table(("path", "measured ms", "account", "simulator", "p95", "records"), rows)
    lines.append(f"{answer['within']:.0%} of the paths within {NEAR:.0%} of what was measured, by both")
    if not answer["shaped"]:
        lines.append("links were as fast as this machine, and not the net's: network namespaces need root")
    return "\n".join(lines)
