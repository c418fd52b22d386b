"""Figures 5 to 10 of Veith et al.: seconds to place, and latency of each placement when it is played.

The paper runs a placement for 60 seconds in a simulator; so does `headwater bench aels --time 60`. Latency is the mean age
of the records at each sink, summed over sinks; time in windows is left out, as no placement can change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater import sim
from headwater.net.arrays import Ints
from headwater.place.problem import Problem
from headwater_bench.experiments.plots import figure

NETS = ("regular", "large", "extra-large")
APPLICATIONS = ("medium", "large", "extra-large")
FIGURES = {"regular": (5, 6), "large": (7, 8), "extra-large": (9, 10)}
"""For each class of nets, the figures of time and of latency."""
PAPER_LOWER = {"cloud-only": (0.26, 0.44 / 1.44, None), "tcep": (0.50, 0.44 / 1.44, None)}
"""How far below these AELS+RP+LA is in the paper, on regular and large nets; "≈ 44 % higher" is 31 % lower."""
_OFF = 0.02


def played(problem: Problem, device: Ints, seconds: float, seed: int = 0) -> dict[str, float]:
    """Play a placement for so many seconds of virtual time; latency summed over sinks, played and expected."""
    report = sim.run_queues(problem, device, sim.QueueOptions(seconds=seconds, seed=seed, warm_up=0.05))
    reached = [row for row in report.extra["sinks"].values() if row["records"] >= 100]
    return {
        "played_for_s": seconds,
        "played_s": float(sum(row["simulated_s"] for row in reached)),
        "expected_s": float(sum(row["predicted_s"] for row in reached)),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up what was played, beside the paper; raise if it is not what the model expects."""
    ratios = np.array([row["played_s"] / row["expected_s"] for row in rows if row.get("expected_s")])
    if not len(ratios):
        return {}
    if abs(ratios.mean() - 1) > _OFF:
        raise AssertionError(f"latency played over expected is {ratios.mean():.4f} on average; expected 1")
    return {
        "placements": len(ratios),
        "played_over_expected": float(ratios.mean()),
        "within_2_percent": float((np.abs(ratios - 1) < _OFF).mean()),
        "lower_than": {
            rival: {kind: _lower(rows, rival, kind) for kind in NETS} | {"paper": list(PAPER_LOWER[rival])}
            for rival in PAPER_LOWER
        },
    }


def _lower(rows: Sequence[dict[str, Any]], rival: str, kind: str) -> float | None:
    """How far AELS+RP+LA is below a rival, over cases in which both found a placement."""
    case = ("clouds", "sites", "devices_per_site", "graph", "setting")
    by_case: dict[str, dict[tuple[Any, ...], float]] = {"aels-rp-la": {}, rival: {}}
    for row in rows:
        if row["net"] == kind and row["strategy"] in by_case and row.get("expected_s"):
            by_case[row["strategy"]][tuple(row[key] for key in case)] = row["played_s"]
    both = by_case["aels-rp-la"].keys() & by_case[rival].keys()
    own, other = (sum(by_case[name][key] for key in both) for name in ("aels-rp-la", rival))
    return 1 - own / other if both else None


def lines(part: dict[str, Any]) -> list[str]:
    """Say it in words."""
    if not part:
        return []
    out = [
        f"{part['placements']:,} placements played: latency {part['played_over_expected']:.4f} of what the model expects "
        f"on average, {100 * part['within_2_percent']:.1f} % of them within 2 %"
    ]
    for rival, by_net in part["lower_than"].items():
        cells = [
            f"{kind} {'-' if by_net[kind] is None else f'{100 * by_net[kind]:.0f} %'}"
            f" ({'-' if paper is None else f'{100 * paper:.0f} %'})"
            for kind, paper in zip(NETS, by_net["paper"], strict=True)
        ]
        out.append(f"  aels-rp-la below {rival}, played (paper): {', '.join(cells)}")
    return out


def draw(rows: Sequence[dict[str, Any]], strategies: Sequence[str], output: Path) -> None:
    """Draw a picture per figure, a panel per class of application; latency as played, else as the model has it."""
    if any(row.get("expected_s") for row in rows):
        latency, label = "played_s", "latency played, s, summed over sinks"
    else:
        latency, label = "aggregate_without_windows_s", "latency by the model, s, summed over paths"
    for kind, (of_time, of_latency) in FIGURES.items():
        own = [row for row in rows if row["net"] == kind]
        if own:
            _boxes(own, strategies, "seconds", "seconds to place", of_time, kind, output)
            _boxes(own, strategies, latency, label, of_latency, kind, output)


def _boxes(
    rows: Sequence[dict[str, Any]],
    strategies: Sequence[str],
    column: str,
    label: str,
    number: int,
    kind: str,
    output: Path,
) -> None:
    fig, axes = figure(1, len(APPLICATIONS), 13, 4.2)
    for axis, application in zip(axes[0], APPLICATIONS, strict=True):
        own = [row for row in rows if row["application"] == application and np.isfinite(row.get(column, np.nan))]
        data = [[row[column] for row in own if row["strategy"] == name] or [float("nan")] for name in strategies]
        axis.boxplot(data, showfliers=False)
        axis.set_xticks(range(1, len(strategies) + 1), strategies, rotation=35, fontsize=8)
        axis.set(title=f"{application} applications", ylabel=label, yscale="log" if column == "seconds" else "linear")
    fig.suptitle(f"figure {number}: {kind} nets")
    fig.savefig(output / f"figure{number}.png", dpi=110)
