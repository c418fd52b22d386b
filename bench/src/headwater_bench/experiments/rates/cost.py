"""What a promise costs: processor time beside the engine as it is by default, at equal rate; start; memory of its own.

Both have cores reserved. On a machine that is busy with others an engine that has none comes to run more seldom, takes more
records at once, and so seems cheaper for being late.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from headwater.rate.client import Client
from headwater.rate.fork_context import KeptBy
from headwater.rate.forks import forked
from headwater.rate.messages import Status
from headwater_bench.experiments.rates.isolation import MIX
from headwater_bench.experiments.rates.lap import Lap, together
from headwater_bench.experiments.rows import text_table

GOALS = {"promised_over_default": 1.0, "start_s": 0.5, "private_mb": 90.0}
"""What the dearest of the flows may cost; it starts when its lane is ordered, and has when its first record came out."""


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Run each flow promised and by default, by turns."""
    seconds, times = (2, 2) if quick else (4, 3)
    # both go home after a minute without a promise, and are to be there as on a machine that has some
    Client(home).say(Status())
    forked("os:getpid", [], KeptBy(0), home).wait()
    answer: dict[str, Any] = {}
    for name, rate_hz in MIX.items():
        laps = {
            system: [
                together(
                    [Lap(name, system, [(0.0, rate_hz)], seconds, profile=profiles[name], trial_s=0.0)],
                    home,
                )[0]
                for _ in range(times)
            ]
            for system in ("promised", "protected")
        }
        used = {system: statistics.median(lap["used_cores"] for lap in runs) for system, runs in laps.items()}
        answer[name] = {
            "promised_over_default": round(used["promised"] / used["protected"], 3),
            "promised_cores": used["promised"],
            "default_cores": used["protected"],
            "start_s": statistics.median(lap["start_s"] for lap in laps["promised"]),
            "start_parts_s": _medians([lap["start_parts_s"] for lap in laps["promised"]]),
            "private_mb": statistics.median(lap["private_mb"] for lap in laps["promised"]),
        }
    worst = {key: max(row[key] for row in answer.values()) for key in GOALS}
    return answer | worst | {"goals": [f"{key} at most {goal:g}" for key, goal in GOALS.items()]}


def _medians(laps: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in laps) for key in laps[0]}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    head = ("cost of a promise", "cores over default", "cores", "start s", "private MB")
    keys = ("promised_over_default", "promised_cores", "start_s", "private_mb")
    flows = {name: row for name, row in part.items() if isinstance(row, dict)}
    return [
        *text_table(head, [(name, *(row[key] for key in keys)) for name, row in flows.items()]),
        f"goals: {', '.join(part['goals'])}",
        *(
            f"start of {name}: {', '.join(f'{s:.3f} s {what}' for what, s in row['start_parts_s'].items())}"
            for name, row in flows.items()
        ),
    ]
