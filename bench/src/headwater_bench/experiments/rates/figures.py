"""The pictures of experiment `rates`, each with what the paper says under it, and the cases as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater_bench.experiments.plots import figure
from headwater_bench.experiments.rows import write_rows


def write(answer: dict[str, Any], output: Path) -> None:
    """Write a CSV file and a picture of each figure that was made."""
    output.mkdir(parents=True, exist_ok=True)
    for name, draw in (
        ("isolation", _isolation),
        ("admission", _admission),
        ("burst", _burst),
        ("scaling", _scaling),
        ("cores", _cores),
    ):
        if name in answer:
            _rows(name, answer[name], output)
            draw(answer[name], output / f"{name}.png")
    for name in ("hostile", "cost"):
        if name in answer:
            found = {key: row for key, row in answer[name].items() if isinstance(row, dict)}
            write_rows([{name: key, **row} for key, row in found.items()], output / f"{name}.csv")
            _bars(name, found, output / f"{name}.png")


def _rows(name: str, answer: dict[str, Any], output: Path) -> None:
    if name == "burst":
        systems = {key: row for key, row in answer.items() if isinstance(row, dict)}
        rows: list[dict[str, Any]] = [
            {"system": system, "second": at, "due": due, "arrived": came, "worst_ms": worst}
            for system, found in systems.items()
            for at, (due, came, worst) in enumerate(zip(found["due"], found["arrived"], found["worst_ms"], strict=True))
        ]
    else:
        rows = answer["cases"]
    series = ("delivered", "due", "worst_ms", "arrived", "promise", "settings", "scaled")
    write_rows(rows, output / f"{name}.csv", without=() if name == "burst" else series)


def _isolation(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 12, 4.6)
    left, right = axes[0]
    for system, found in answer.items():
        if isinstance(found, dict):
            left.plot(found["levels"], found["rate_kept_by_level"], marker=".", label=system)
            right.plot(found["levels"], found["p99_ms_by_level"], marker=".", label=system)
    left.set(xlabel="SCAN wants, % of the machine", ylabel="throughput / input", ylim=(0, 1.05))
    right.set(xlabel="SCAN wants, % of the machine", ylabel="p99 of the worst flow, ms", yscale="log")
    left.legend(fontsize=8)
    _say(fig, "ETL, STATS and PRED beside SCAN", answer["paper"], path)


def _admission(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 1, 6.5, 4.6)
    ran = [row for row in answer["cases"] if row.get("reserved")]
    used, reserved = [row["used_cores"] for row in ran], [row["reserved"] for row in ran]
    axes[0][0].scatter(used, reserved, c=["#1f77b4" if row["kept"] >= 0.99 else "#d62728" for row in ran])
    most = max([*reserved, 0.1])
    axes[0][0].plot([0, most], [0, most], "--", color="#888888")
    axes[0][0].set(xlabel="cores used", ylabel="cores reserved")
    _say(fig, "admission: every lane of every mix (red: broken)", "the paper has no such figure", path)


def _burst(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(2, 1, 9, 6.5)
    systems = {key: row for key, row in answer.items() if isinstance(row, dict)}
    for system, found in systems.items():
        axes[0][0].plot([each / 1e3 for each in found["arrived"]], label=system)
        axes[1][0].plot([max(each, 0.1) for each in found["worst_ms"]], label=system)
    due = next(iter(systems.values()))["due"] if systems else []
    axes[0][0].plot([each / 1e3 for each in due], "--", color="#888888", label="offered")
    axes[0][0].set(ylabel="thousand messages/s", ylim=(0, None))
    axes[1][0].set(xlabel="seconds", ylabel="worst latency, ms", yscale="log")
    axes[0][0].legend(fontsize=8)
    _say(fig, "PRED, its rate doubled for a while", answer["paper"], path)


def _scaling(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 12, 4.6)
    left, right = axes[0]
    for system, kept in answer["rate_kept"].items():
        left.plot([float(load) for load in kept], list(kept.values()), marker=".", label=system)
    left.set(xlabel="input over what threads can do", ylabel="throughput / input", ylim=(0, 1.05))
    left.legend(fontsize=8)
    for number, (system, by_flow) in enumerate(answer["latency_at_70_ms"].items()):
        right.bar([at + number * 0.15 for at in range(len(by_flow))], list(by_flow.values()), 0.15, label=system)
        right.set_xticks(range(len(by_flow)), list(by_flow))
    right.axhline(20, color="#888888", linestyle="--")
    right.set(ylabel="median latency at 70 %, ms", yscale="log")
    _say(fig, "scaling with the rate", answer["paper"], path)


def _cores(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 12, 4.6)
    panels = (
        (axes[0][0], answer["throughput_over_4_cores"], "cores", "throughput over that on 4 cores"),
        (axes[0][1], answer["throughput_by_machines"], "machines of 4 cores", "throughput over that of one"),
    )
    for axis, found, xlabel, ylabel in panels:
        by_count = {int(count): value for count, value in found.items()}
        least = min(by_count)
        axis.plot(list(by_count), list(by_count.values()), marker="o", label="promised, simulated")
        axis.plot(list(by_count), [count / least for count in by_count], "--", color="#888888", label="linear")
        axis.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
        axis.legend(fontsize=8)
    _say(fig, "what can be promised, by cores and by machines", answer["paper"], path)


def _bars(name: str, found: dict[str, Any], path: Path) -> None:
    keys = {"hostile": ("kept", "p99_ms"), "cost": ("promised_cores", "default_cores")}[name]
    fig, axes = figure(1, 2, 10, 4.2)
    for axis, key in zip(axes[0], keys, strict=True):
        axis.bar(list(found), [row[key] for row in found.values()])
        axis.set(title=key.replace("_", " "), ylim=(0, None))
    _say(fig, name, "the paper has no such figure", path)


def _say(fig: Any, title: str, paper: str, path: Path) -> None:
    fig.suptitle(f"{title}\npaper: {paper}", fontsize=9)
    fig.savefig(path, dpi=110)
