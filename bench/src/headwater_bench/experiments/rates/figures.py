"""The pictures of experiment `rates`, each with what the paper says under its title, and the cases as CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater_bench.experiments.plots import decades, figure
from headwater_bench.experiments.rates import burst
from headwater_bench.experiments.rows import write_rows

#: one look for each system in all pictures, ours first
_LOOKS: dict[str, dict[str, Any]] = {
    "promised": {"color": "#1f77b4", "linewidth": 2.6, "zorder": 5},
    "unprotected": {"color": "#9aa5b1"},
    "longest_queue": {"color": "#2ca02c"},
    "threads": {"color": "#444444"},
    "dhalion": {"color": "#e0a100"},
    "dhalion_in_containers": {"color": "#b35900"},
    "serverless": {"color": "#d62728"},
    "serverless_in_containers": {"color": "#7a1520"},
}
_NAMES = {
    "promised": "promised (ours)",
    "unprotected": "the same without a promise",
    "longest_queue": "longest queue (EdgeWise)",
    "threads": "a thread per step (Storm)",
    "dhalion": "Dhalion, the whole machine",
    "dhalion_in_containers": "Dhalion in containers",
    "serverless": "best-effort serverless, the whole machine",
    "serverless_in_containers": "best-effort serverless in containers",
}
_FLOWS = {"etl": "#1f77b4", "stats": "#e0a100", "pred": "#2ca02c"}
_TWO = {"promised_over_one": "highest rate promised", "two_over_one": "most that was done"}
_GOAL = {"color": "#888888", "linestyle": "--", "linewidth": 1}
_SERIES = (
    "delivered",
    "due",
    "worst_ms",
    "arrived",
    "promise",
    "settings",
    "scaled",
    "start_parts_s",
    "one_refused",
    "two_refused",
)
_LETTERS = 11  #: of a title, that an inch has room for
_NO_FIGURE = "the paper has no such figure"


def write(answer: dict[str, Any], output: Path) -> None:
    """Write CSV files and a picture of each part that was measured."""
    output.mkdir(parents=True, exist_ok=True)
    for name, draw in (
        ("isolation", _isolation),
        ("admission", _admission),
        ("burst", _burst),
        ("hostile", _hostile),
        ("scaling", _scaling),
        ("cost", _cost),
        ("cores", _cores),
    ):
        if name in answer:
            for file, rows in _cases(name, answer[name]).items():
                write_rows(rows, output / f"{file}.csv", without=() if name == "burst" else _SERIES)
            draw(answer[name], output / f"{name}.png")


def _cases(name: str, part: dict[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return what is written of a part, by the names of the files."""
    if name == "burst":
        return {file: _by_second(each) for file, each in _bursts(part).items()}
    if name in ("hostile", "cost"):
        return {name: [{name: key, **row} for key, row in _dicts(part).items()]}
    if name == "cores":
        lanes = [{"flow": flow, **row} for flow, row in part["two_lanes_over_one"].items()]
        return {name: part["cases"], "machines": part["machine_cases"], "lanes": lanes}
    return {name: part["cases"]}


def _bursts(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return both bursts of the part, from the paper's rate and at this machine's scale, by the names of their files."""
    bursts = {"burst": part, f"burst_{burst.AT_SCALE}": part.get(burst.AT_SCALE)}
    return {name: each for name, each in bursts.items() if each is not None}


def _by_second(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"system": system, "second": at, "due": due, "arrived": came, "worst_ms": worst}
        for system, row in burst.systems(part).items()
        for at, (due, came, worst) in enumerate(zip(row["due"], row["arrived"], row["worst_ms"], strict=True))
    ]


def _dicts(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {key: row for key, row in part.items() if isinstance(row, dict)}


def _isolation(part: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 13, 5.2)
    left, right = axes[0]
    for system, row in _dicts(part).items():
        label = f"{_NAMES[system]}, {row['kept']:.0%} of {row['windows']:,} windows kept"
        left.plot(row["levels"], row["rate_kept_by_level"], marker="o", label=label, **_LOOKS[system])
        right.plot(row["levels"], row["p99_ms_by_level"], marker="o", **_LOOKS[system])
    for axis in (left, right):
        axis.set_xlabel("processor that SCAN wants, % of the machine (100: all cores busy)")
    left.set(ylabel="throughput / input, mean of the three flows", ylim=(0, 1.05))
    right.set(ylabel="p99 latency of the worst of the three flows, ms", yscale="log")
    _goal(right, 50, "promised: 50 ms")
    left.legend(fontsize=8, loc="lower left")
    _say(fig, "ETL 20,000/s, STATS 10,000/s and PRED 30,000/s together, beside SCAN", part["paper"], path)


def _admission(part: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 1, 7.5, 5.6)
    axis = axes[0][0]
    ran = [row for row in part["cases"] if row.get("reserved")]
    for all_kept, colour, label in ((True, "#1f77b4", "all windows kept"), (False, "#d62728", "some broken")):
        mine = [row for row in ran if (row["kept"] >= 0.99) == all_kept]
        if mine:
            used, reserved = [row["used_cores"] for row in mine], [row["reserved"] for row in mine]
            axis.scatter(used, reserved, c=colour, label=f"{label}: {len(mine)} lanes", zorder=3)
    most = max([0.1, *(row["used_cores"] for row in ran)])
    for times in (1.0, 1.8):
        axis.plot([0, most], [0, times * most], **_GOAL)
        axis.annotate(f"{times:g} × used", (most, times * most), fontsize=8, color="#666666", ha="right", va="bottom")
    axis.set(xlabel="cores that the lane used, beside SCAN at 100 %", ylabel="cores reserved for it")
    axis.legend(fontsize=8, loc="upper left")
    title = f"admission: every lane of {part.get('mixes', 'the')} random mixes; wanted between the dashed lines"
    _say(fig, title, _NO_FIGURE, path)


def _burst(part: dict[str, Any], path: Path) -> None:
    for name, each in _bursts(part).items():
        _doubled(each, path.with_stem(name))


def _doubled(part: dict[str, Any], path: Path) -> None:
    fig, axes = figure(2, 1, 10, 7.4)
    above, below = axes[0][0], axes[1][0]
    systems = burst.systems(part)
    due: list[float] = []
    for system, row in systems.items():
        first_hz = row["base_hz"]  # not of all the same: who could not do it has a part of it
        due = [each / first_hz for each in row["due"]]
        seconds = [at + 0.5 for at in range(len(due))]
        label = f"{_NAMES[system]}, from {first_hz:,.0f}/s: {row['kept']:.0%} of {row['windows']} windows kept"
        above.plot(seconds, [each / first_hz for each in row["arrived"]], label=label, **_LOOKS[system])
        below.plot(seconds, [max(each, 0.1) for each in row["worst_ms"]], **_LOOKS[system])
        for number, event in enumerate(each for each in row.get("scaled", ()) if 0 <= each.get("at_s", -1) < len(due)):
            legend = f"{_NAMES[system]} restarts to scale" if not number else None
            above.axvline(event["at_s"], color=_LOOKS[system]["color"], linestyle=":", linewidth=1.2, label=legend)
    above.plot([at + 0.5 for at in range(len(due))], due, label="offered", **_GOAL)
    peak = [at for at, each in enumerate(due) if each > 1.5]
    for axis in (above, below):
        if peak:
            axis.axvspan(peak[0], peak[-1] + 1, color="#d62728", alpha=0.06)
        axis.set_xlim(0, max(1, len(due)))
    above.set(ylabel="PRED, messages that came out,\nover those of the first rate", ylim=(0, None))
    below.set(xlabel="seconds (shaded: the burst)", ylabel="worst latency of the second, ms", yscale="log")
    _goal(below, 50, "promised: 50 ms")
    above.legend(fontsize=8, loc="lower right")
    _say(fig, f"PRED, {part['base_hz']:,.0f}/s doubled for a while", part["paper"], path)


def _hostile(part: dict[str, Any], path: Path) -> None:
    rows = _dicts(part)
    fig, axes = figure(1, 2, 12, 4.8)
    left, right = axes[0]
    names = [f"{name}\n{row['windows']} windows" for name, row in rows.items()]
    left.bar(names, [100 * row["kept"] for row in rows.values()])
    left.set(ylabel="windows kept, %", ylim=(0, 105))
    right.bar(names, [row["p99_ms"] for row in rows.values()])
    right.set(ylabel="p99 latency, ms")
    _goal(right, 50, "promised: 50 ms")
    _say(
        fig,
        "ETL, 20,000/s within 50 ms, beside neighbours; beside short processes all flows, within 20 ms",
        _NO_FIGURE,
        path,
    )


def _scaling(part: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 13, 5.2)
    left, right = axes[0]
    for system, by_load in part["throughput_over_input"].items():
        loads = [float(load) for load in by_load]
        left.plot(loads, list(by_load.values()), marker="o", label=_NAMES[system], **_LOOKS[system])
    left.set(xlabel="input, over the most that threads can do", ylabel="throughput / input", ylim=(0, 1.05))
    left.legend(fontsize=8)
    width = 0.8 / max(1, len(part["latency_at_70_ms"]))
    for number, (system, by_flow) in enumerate(part["latency_at_70_ms"].items()):
        places = [at + number * width for at in range(len(by_flow))]
        right.bar(places, list(by_flow.values()), width, label=_NAMES[system], color=_LOOKS[system]["color"])
        right.set_xticks([at + 0.4 - width / 2 for at in range(len(by_flow))], [flow.upper() for flow in by_flow])
    right.set(ylabel="median latency at 70 % of what threads can do, ms", yscale="log", ylim=(1, None))
    _goal(right, 20, "paper, Storm-RTS: below 20 ms")
    _say(fig, "one configuration, more and more input (left); latency at 70 % (right)", part["paper"], path)


def _cost(part: dict[str, Any], path: Path) -> None:
    rows = _dicts(part)
    fig, axes = figure(1, 3, 14, 4.6)
    cores, start, memory = axes[0]
    places = range(len(rows))
    for number, (key, label) in enumerate((("promised_cores", "promised"), ("default_cores", "default engine"))):
        values = [row[key] for row in rows.values()]
        cores.bar([at + 0.4 * number for at in places], values, 0.4, label=label)
    cores.set(ylabel="cores used at the same rate")
    cores.set_xticks([at + 0.2 for at in places], [name.upper() for name in rows])
    cores.legend(fontsize=8)
    for axis, key, ylabel, goal, goal_text in (
        (start, "start_s", "from the order to the first record, s", 0.5, "goal: 0.5 s"),
        (memory, "private_mb", "memory of its own, MB", 90, "goal: 90 MB"),
    ):
        axis.bar([name.upper() for name in rows], [row[key] for row in rows.values()])
        axis.set(ylabel=ylabel)
        _goal(axis, goal, goal_text)
    _say(fig, "what a promise costs", _NO_FIGURE, path)


def _cores(part: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 3, 16, 5.2)
    left, middle, right = axes[0]
    _grown(left, part["cases"], "cores")
    left.set(xlabel="simulated cores of one machine", title="figure 8")
    _grown(middle, part["machine_cases"], "machines")
    middle.set(xlabel="simulated machines of 4 cores", title="figure 9a")
    lanes = part["two_lanes_over_one"]
    places = range(len(lanes))
    for number, (key, label) in enumerate(_TWO.items()):
        right.bar([at + 0.4 * number for at in places], [row.get(key, 0.0) for row in lanes.values()], 0.4, label=label)
    right.set_xticks([at + 0.2 for at in places], [flow.upper() for flow in lanes])
    right.set(ylabel="two lanes over one, messages/s", ylim=(0, 2.4), title="for real, on this machine")
    right.legend(fontsize=8, loc="upper left")
    _goal(right, 1.7, "goal: 1.7")
    title = (
        f"{part['kept']:.0%} of windows kept on simulated cores, beside a SCAN that wants them all; costs measured here"
    )
    _say(fig, title, part["paper"], path)


def _grown(axis: Any, rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """Draw the rate that each flow was promised, and kept, by how many there were of something."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    counts = sorted({row[key] for row in rows})
    for flow in dict.fromkeys(row["flow"] for row in rows):
        mine = {row[key]: row["rate_hz"] for row in rows if row["flow"] == flow}
        colour = _FLOWS.get(flow, "#444444")
        times = mine[counts[-1]] / mine[counts[0]]
        label = f"{flow.upper()}: {times:.1f} times with {counts[-1] / counts[0]:g} times the {key}"
        axis.plot(counts, [mine[count] for count in counts], marker="o", color=colour, label=label)
        linear = [mine[counts[0]] * count / counts[0] for count in counts]
        axis.plot(counts, linear, color=colour, linestyle=":", linewidth=1)
    axis.plot([], [], color="#444444", linestyle=":", linewidth=1, label="in proportion")
    axis.set(xscale="log", yscale="log", ylabel="messages/s promised and kept")
    axis.xaxis.set_major_locator(FixedLocator(counts))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.legend(fontsize=8)


def _goal(axis: Any, value: float, text: str) -> None:
    """Draw what is wanted across a picture, and say what it is."""
    axis.axhline(value, **_GOAL)
    axis.annotate(text, (0.99, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)


def _say(fig: Any, title: str, paper: str, path: Path) -> None:
    """Write a picture, with what it shows and what the paper says above it."""
    source = paper if paper == _NO_FIGURE else f"paper, {paper}"
    fig.suptitle(f"{title}\n{textwrap.fill(source, round(_LETTERS * fig.get_figwidth()))}", fontsize=10)
    for axis in fig.axes:
        axis.grid(alpha=0.25)
        if axis.get_yscale() == "log":
            decades(axis.yaxis)
    fig.savefig(path, dpi=110)
