"""The experiment's pictures in the form of the EdgeWise paper's figures 7 to 11."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater_bench.experiments.plots import figure

Case = dict[str, Any]

_COLOURS = ("#444444", "#1f77b4", "#2ca02c", "#9aa5b1", "#e0a100", "#d62728")
_PARTS = (
    ("t_q_ms", "behind others", "#9aa5b1"),
    ("t_s_ms", "for a worker", "#e0a100"),
    ("t_c_ms", "computed", "#1f77b4"),
)


def draw(cases: Sequence[Case], folder: Path) -> None:
    """Draw all figures into a folder."""
    swept = [case for case in cases if case["take"] == "50"]
    flows = list(dict.fromkeys(case["subject"] for case in cases))
    _lines(swept, flows, "out_hz", "p99_ms", folder / "figure7.png", "throughput, messages/s", "p99 latency, ms")
    _lines(swept, flows, "offered_hz", "cv", folder / "figure8.png", "offered, messages/s", "CV of utilisation")
    for flow in flows:
        _split([case for case in swept if case["subject"] == flow], folder / f"figure9-{flow}.png", flow)
    taken = {(case["subject"], case["take"]) for case in cases}
    if any(take != "50" for _, take in taken):
        _takes(cases, flows, folder / "figure11.png")


def _lines(cases: Sequence[Case], flows: Sequence[str], x: str, y: str, path: Path, x_label: str, y_label: str) -> None:
    fig, axes = figure(1, len(flows), 4.5 * len(flows), 3.6)
    for flow, axis in zip(flows, axes[0], strict=True):
        mine = [case for case in cases if case["subject"] == flow]
        for config, colour in zip(dict.fromkeys(case["config"] for case in mine), _COLOURS, strict=False):
            rates = sorted({case["offered_hz"] for case in mine if case["config"] == config})
            at = [[c for c in mine if c["config"] == config and c["offered_hz"] == rate] for rate in rates]
            xs, ys = (_medians(at, name) for name in (x, y))
            axis.plot(xs, ys, marker=".", color=colour, label=config, linewidth=1.2)
        axis.set(title=flow, xlabel=x_label, ylabel=y_label, yscale="log" if y == "p99_ms" else "linear")
    axes[0][0].legend(fontsize=7)
    fig.savefig(path, dpi=110)


def _medians(groups: Sequence[Sequence[Case]], name: str) -> list[float]:
    return [statistics.median(case[name] for case in group) for group in groups]


def _split(cases: Sequence[Case], path: Path, flow: str) -> None:
    """Draw where each step's latency comes from, at a low, a middle and a high rate that all runners shown were tried at."""
    configs, shown = compared_at(cases)
    if not configs:
        return
    fig, axes = figure(len(configs), 3, 13, 3.2 * len(configs))
    for row, config in zip(axes, configs, strict=True):
        for axis, rate in zip(row, shown, strict=True):
            at = [case for case in cases if case["config"] == config and case["offered_hz"] == rate]
            steps = list(at[0]["steps"]) if at else []
            bottom = [0.0] * len(steps)
            for name, label, colour in _PARTS:
                heights = [statistics.median(case["steps"][step][name] for case in at) for step in steps]
                axis.bar(steps, heights, bottom=bottom, color=colour, label=label)
                bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
            axis.set(title=f"{config}, {rate:,.0f}/s", ylabel="ms per record")
            axis.tick_params(axis="x", rotation=60, labelsize=7)
    axes[0][0].legend(fontsize=7)
    fig.suptitle(flow)
    fig.savefig(path, dpi=110)


def compared_at(cases: Sequence[Case]) -> tuple[list[str], list[float]]:
    """Which runners are drawn beside each other, and at which three rates: a sweep leaves out what one could not keep."""
    tried = {
        config: {case["offered_hz"] for case in cases if case["config"] == config}
        for config in ("threads", "longest_queue")
    }
    tried = {config: rates for config, rates in tried.items() if rates}
    common = sorted(set.intersection(*tried.values())) if tried else []
    return (list(tried), [common[0], common[len(common) // 2], common[-1]]) if common else ([], [])


def _takes(cases: Sequence[Case], flows: Sequence[str], path: Path) -> None:
    """Draw latency and balance by how much a turn consumes, at the rate where that was tried."""
    fig, axes = figure(2, len(flows), 4 * len(flows), 6)
    for column, flow in enumerate(flows):
        tried = [case for case in cases if case["subject"] == flow and case["take"] != "50"]
        rates = {case["offered_hz"] for case in tried}
        mine = [case for case in cases if case["subject"] == flow and case["config"] == "longest_queue"]
        mine = [case for case in mine if case["offered_hz"] in rates]
        takes = list(dict.fromkeys(case["take"] for case in mine))
        for row, (name, label) in enumerate((("p99_ms", "p99 latency, ms"), ("cv", "CV of utilisation"))):
            heights = _medians([[c for c in mine if c["take"] == take] for take in takes], name)
            axes[row][column].bar(takes, heights, color="#1f77b4")
            axes[row][column].set(title=flow, xlabel="taken per turn", ylabel=label)
    fig.savefig(path, dpi=110)
