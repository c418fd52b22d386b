"""The experiment's pictures in the form of the EdgeWise paper's figures 7 to 11, and what the paper has no figure of."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater_bench.experiments.plots import decades, figure
from headwater_bench.experiments.riot import KERNELS, is_of_sweep
from headwater_bench.experiments.trial import BOUND_MS, CONFIGS, Trial, sustained_hz

_COLOURS = dict(zip(CONFIGS, ("#444444", "#1f77b4", "#2ca02c", "#9467bd", "#e0a100", "#d62728"), strict=True))
_NAMES = {"threads": "a thread for each step", "random": "any step (random)"} | {
    "longest_queue": "longest queue first",
    "min_latency": "nearest to a sink first (min latency)",
    "min_memory": "shrinks its queue fastest first (min memory)",
    "oldest_first": "oldest record first (the default)",
}
_TAKES = {"all": "an activation takes all that waits", "half": "half of it"}
_WAYS = {"release": "kernels release Python's lock", "keep": "kernels keep Python's lock"}
_OTHERS = ("#1f77b4", "#2ca02c", "#e0a100", "#d62728", "#9467bd")
_PARTS = (
    ("t_q_ms", "waits behind others", "#9aa5b1"),
    ("t_s_ms", "waits for a worker", "#e0a100"),
    ("t_c_ms", "is computed", "#1f77b4"),
)
_OUT, _OFFERED, _P99 = "throughput, messages/s", "offered, messages/s", "p99 latency, ms"
_BETTER = "further right and lower is better"

Lines = Mapping[str, Sequence[Trial]]  #: the trials of each line of a picture, by its name


def draw(trials: Sequence[Trial], folder: Path) -> None:
    """Draw all that these trials show into a folder."""
    swept = [trial for trial in trials if is_of_sweep(trial)]
    title = f"Latency over throughput, by who is served next: {_BETTER}"
    _rates(swept, _by_config, "out_hz", "p99_ms", folder / "figure7.png", title, _OUT, _P99)
    title = "How unevenly steps are busy, by who is served next: lower is more even"
    label = "variation (CV) of how busy steps are"
    _rates(swept, _by_config, "offered_hz", "cv", folder / "figure8.png", title, _OFFERED, label)
    for flow in _flows(swept):
        _split([t for t in swept if t.subject == flow and t.kernels == swept[0].kernels], folder, flow)
    if any(trial.take != "all" for trial in trials):
        plain = [trial for trial in trials if not trial.workers and not trial.padding]
        flows = {trial.subject for trial in trials if trial.take != "all"}
        title = f"Latency over throughput, by how much of a queue an activation takes: {_BETTER}"
        _rates(
            [t for t in plain if t.subject in flows], _by_take, "out_hz", "p99_ms", folder / "figure11.png",
            title, _OUT, _P99,
        )  # fmt: skip
    if any(trial.workers for trial in trials):
        _sustained([trial for trial in trials if trial.workers], "workers", folder / "workers.png", "workers")
    if any(trial.padding for trial in trials):
        flows = {trial.subject for trial in trials if trial.padding}
        alike = [t for t in trials if t.take == "all" and not t.workers and t.subject in flows]
        label = "bytes added to each message, which has some 400"
        _sustained(alike, "padding", folder / "sizes.png", label, ("threads", "longest_queue"))


def _flows(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.subject for trial in trials))


def _ways(trials: Sequence[Trial]) -> list[str]:
    return [way for way in KERNELS if any(trial.kernels == way for trial in trials)]


def _by_config(trials: Sequence[Trial]) -> Lines:
    return {_NAMES[config]: mine for config in CONFIGS if (mine := [t for t in trials if t.config == config])}


def _by_take(trials: Sequence[Trial]) -> Lines:
    """Return how much an activation consumes, all with one policy, and threads beside it."""
    takes = dict.fromkeys(trial.take for trial in trials)
    lines = {
        _TAKES.get(take, f"at most {take}"): [t for t in trials if (t.config, t.take) == ("longest_queue", take)]
        for take in takes
    }
    threads = [trial for trial in trials if trial.config == "threads"]
    return lines | ({_NAMES["threads"]: threads} if threads else {})


def _rates(
    trials: Sequence[Trial],
    lines_of: Callable[[Sequence[Trial]], Lines],
    x: str,
    y: str,
    path: Path,
    title: str,
    x_label: str,
    y_label: str,
) -> None:
    """Draw a line over all rates for each of what is compared: a column for each flow, a row for each way with the lock."""
    flows, ways = _flows(trials), _ways(trials)
    colours = {
        _NAMES[config]: colour for config, colour in _COLOURS.items() if lines_of is _by_config or config == "threads"
    }
    fig, axes = figure(len(ways), len(flows), max(8.0, 4.5 * len(flows)), 3.6 * len(ways))
    for row, way in zip(axes, ways, strict=True):
        for axis, flow in zip(row, flows, strict=True):
            lines = lines_of([t for t in trials if (t.subject, t.kernels) == (flow, way)])
            others = iter(_OTHERS)
            for name, mine in lines.items():
                rates = sorted({trial.offered_hz for trial in mine})
                at = [[trial for trial in mine if trial.offered_hz == rate] for rate in rates]
                colour = colours.get(name) or next(others)
                axis.plot(_medians(at, x), _medians(at, y), marker=".", color=colour, label=name, linewidth=1.2)
            scale = "log" if y == "p99_ms" else "linear"
            axis.set(title=f"{flow.upper()}, {_WAYS[way]}", xlabel=x_label, ylabel=y_label, yscale=scale, xscale="log")
            decades(axis.xaxis)
            if y == "p99_ms":
                decades(axis.yaxis)
                axis.axhline(BOUND_MS, color="#888888", linestyle=":", linewidth=1, label=f"bound: {BOUND_MS:g} ms")
    axes[0][0].legend(fontsize=7)
    fig.suptitle(title, fontsize=10 if len(flows) == 1 else 12)
    fig.savefig(path, dpi=110)


def _medians(groups: Sequence[Sequence[Trial]], name: str) -> list[float]:
    return [statistics.median(getattr(trial, name) for trial in group) for group in groups]


def _split(trials: Sequence[Trial], folder: Path, flow: str) -> None:
    """Draw where each step's latency comes from, at a low, a middle and a high rate that all runners shown were tried at."""
    configs, rates = compared_at(trials)
    if not configs:
        return
    fig, axes = figure(len(configs), 3, 13, 3.2 * len(configs))
    for row, config in zip(axes, configs, strict=True):
        for axis, rate in zip(row, rates, strict=True):
            at = [trial for trial in trials if trial.config == config and trial.offered_hz == rate]
            steps = list(at[0].steps) if at else []
            bottom = [0.0] * len(steps)
            for name, label, colour in _PARTS:
                heights = [statistics.median(trial.steps[step][name] for trial in at) for step in steps]
                axis.bar(steps, heights, bottom=bottom, color=colour, label=label)
                bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
            axis.set(title=f"{_NAMES[config]}, {rate:,.0f} messages/s", ylabel="ms per record")
            axis.tick_params(axis="x", rotation=60, labelsize=7)
    axes[0][0].legend(fontsize=7)
    fig.suptitle(f"{flow.upper()}: where the time of a record goes, step by step ({_WAYS[trials[0].kernels]})")
    fig.savefig(folder / f"figure9-{flow}.png", dpi=110)


def compared_at(trials: Sequence[Trial]) -> tuple[list[str], list[float]]:
    """Which runners are drawn beside each other, and at which three rates: a sweep leaves out what one could not keep."""
    tried = {
        config: {trial.offered_hz for trial in trials if trial.config == config}
        for config in ("threads", "longest_queue")
    }
    tried = {config: rates for config, rates in tried.items() if rates}
    common = sorted(set.intersection(*tried.values())) if tried else []
    return (list(tried), [common[0], common[len(common) // 2], common[-1]]) if common else ([], [])


def _sustained(
    trials: Sequence[Trial], what: str, path: Path, label: str, configs: Sequence[str] = ("longest_queue",)
) -> None:
    """Draw the highest sustained rate over what was varied, a line for each configuration and way with the lock."""
    flows, ways = _flows(trials), _ways(trials)
    fig, axes = figure(1, len(flows), max(6.0, 4.5 * len(flows)), 3.6)
    for axis, flow in zip(axes[0], flows, strict=True):
        for config in configs:
            for way in ways:
                mine = [t for t in trials if (t.subject, t.config, t.kernels) == (flow, config, way)]
                values = sorted({getattr(trial, what) for trial in mine})
                highest: list[Any] = [sustained_hz([t for t in mine if getattr(t, what) == value]) for value in values]
                look = {"color": _COLOURS[config], "linestyle": "-" if way == "release" else "--", "marker": "."}
                axis.plot(range(len(values)), highest, label=f"{_NAMES[config]}, {_WAYS[way]}", **look)
                axis.set_xticks(range(len(values)), [f"{value:,}" for value in values])
        axis.set(title=flow.upper(), xlabel=label, ylabel="messages/s", ylim=(0, None))
    axes[0][0].legend(fontsize=7, handlelength=3.5)
    fig.suptitle(f"Highest rate with p99 ≤ {BOUND_MS:g} ms: higher is better")
    fig.savefig(path, dpi=110)
