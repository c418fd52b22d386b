"""Experiment `aels`: 27 nets, 13 graphs in ten settings each, every strategy of Veith et al. and our own.

Each placement is verified, timed, and played by the simulator. Tables 5 to 7 and figures 5 to 10 of the
paper are given with our numbers beside the published ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headwater import net as nets
from headwater import sim
from headwater.errors import RunError
from headwater.place import aels, aels_rp, aels_rp_la, best, cloud_only, exact, tcep
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem
from headwater.sim.predict import latency_s
from headwater_bench.cases import veith
from headwater_bench.experiments import aels_played
from headwater_bench.experiments.aels_cases import class_of_application, class_of_net
from headwater_bench.experiments.aels_played import APPLICATIONS, NETS
from headwater_bench.experiments.rows import write_rows

STRATEGIES: dict[str, Callable[[Problem], Placement]] = {
    "aels": aels.solve,
    "aels-rp": aels_rp.solve,
    "aels-rp-la": aels_rp_la.solve,
    "cloud-only": cloud_only.solve,
    "tcep": tcep.solve,
}
LIMIT_S = 600.0
PAPER_OVER_600 = {
    "regular": {
        "aels": (52, 65, 71),
        "aels-rp": (48, 59, 70),
        "aels-rp-la": (0, 0, 0),
        "cloud-only": (40, 41, 46),
        "tcep": (0, 0, 0),
    },
    "large": {
        "aels": (100, 100, 100),
        "aels-rp": (94, 100, 100),
        "aels-rp-la": (0, 0, 0),
        "cloud-only": (45, 60, 67),
        "tcep": (44, 44, 44),
    },
    "extra-large": {
        "aels": (100, 100, 100),
        "aels-rp": (100, 100, 100),
        "aels-rp-la": (0, 0, 7),
        "cloud-only": (67, 94, 100),
        "tcep": (100, 100, 100),
    },
}
"""Tables 5 to 7 of the paper: per cent of runs over 600 s, for medium, large and extra-large applications."""
PAPER_GAINS = {"cloud-only": 0.26, "tcep": 0.50}
FEW_NETS = ((10, 10, 10), (100, 10, 100), (100, 100, 100), (500, 500, 500))


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    preset: str = "veith",
    seed: int = 0,
    sizes: tuple[tuple[int, int, int], ...] | None = None,
    settings: int | None = None,
    time_s: float | None = None,
) -> dict[str, Any]:
    """Run the experiment; `quick` takes four nets and two settings, and leaves ten million devices out.

    `sizes` (clouds, sites, devices per site) and `settings` choose other cases. With `time_s`, the placement of every
    strategy is played for so many seconds of virtual time (the paper: 60), else that of `best` alone, for less.
    """
    if time_s is not None and not 0 < time_s < float("inf"):
        raise RunError(f"a placement is played for more than 0 s; got {time_s}")
    sizes_run: tuple[tuple[int, ...], ...] = sizes or (FEW_NETS if quick else nets.VEITH_SIZES)
    settings, reading, shapes = settings or (2 if quick else veith.SETTINGS), veith.preset(preset), veith.graphs(seed)
    _warm_up(shapes, reading)
    rows: list[dict[str, Any]] = []
    for size in sizes_run:
        net = nets.cloud_edge(size[0], size[1], size[2], seed=seed)
        for number, shape in enumerate(shapes):
            for k in range(settings):
                drawn = veith.setting(shape, k, reading, seed=seed)
                problem = veith.problem(shape, drawn, net, reading, seed=1000 * number + k)
                rows += _case(problem, size, number, k, time_s)
    clouds, sites, devices = max(sizes_run, key=lambda size: size[0] + size[1] * size[2])
    largest = nets.cloud_edge(clouds, sites, devices, seed=seed)
    answer: dict[str, Any] = {
        "preset": preset,
        "quick": quick,
        "nets": len(sizes_run),
        "settings": len(shapes) * settings,
        "runs": len(rows),
        "over_600_s": sum(row["seconds"] > LIMIT_S for row in rows),
        "slowest_s": max(row["seconds"] for row in rows),
        "seconds_250500x50": _timed(largest, shapes[-1], reading, 3 if quick else 10),
        **_ten_million(quick, shapes[-1], reading, seed),
        "seconds_by_size": _by_size(rows),
        "over_600_table": _over_table(rows),
        "paper_over_600_table": PAPER_OVER_600,
        **_gains(rows),
        **_best_share(rows),
        "infeasible": _infeasible(rows),
        "optimality": _optimality(largest, shapes, reading, 1 if quick else 4),
        "simulated": _simulated(rows),
        "played": aels_played.summary(rows),
    }
    if output is not None:
        write_rows(rows, output / "aels.csv")
        (output / "aels.txt").write_text(table(answer) + "\n")
        aels_played.draw(rows, (*STRATEGIES, "best"), output)
    return answer


def _warm_up(shapes: list[veith.Graph], reading: veith.Preset) -> None:
    net = nets.cloud_edge(2, 2, 2)
    for solve in STRATEGIES.values():
        solve(veith.problem(shapes[0], veith.setting(shapes[0], 0, reading), net, reading))


def _case(
    problem: Problem, size: tuple[int, ...], graph: int, setting: int, time_s: float | None
) -> list[dict[str, Any]]:
    windows = float(problem.step_paths @ problem.window_s)
    rows = []
    answers = {name: solve(problem) for name, solve in STRATEGIES.items()}
    answers["best"] = best.solve(problem, Budget(time_s=5.0), prove=False)
    for name, placement in answers.items():
        row: dict[str, Any] = {
            "clouds": size[0],
            "sites": size[1],
            "devices_per_site": size[2],
            "devices": len(problem.net),
            "net": class_of_net(len(problem.net)),
            "graph": graph,
            "operators": len(problem.steps),
            "application": class_of_application(len(problem.steps)),
            "setting": setting,
            "strategy": name,
            "seconds": placement.seconds,
            "status": placement.status,
            "aggregate_s": placement.value,
            "aggregate_without_windows_s": placement.value - windows,
            "reason": placement.reason,
        }
        if name == "best" and placement.device is not None:
            row["predicted_s"] = latency_s(problem, placement.device)
            row["simulated_s"] = _played(problem, placement)
        if time_s is not None and placement.device is not None:
            row |= aels_played.played(problem, placement.device, time_s)
        rows.append(row)
    return rows


def _played(problem: Problem, placement: Placement) -> float:
    assert placement.device is not None
    span_s = 20_000 / float(problem.rate_hz[list(problem.sources)].sum())
    report = sim.run_queues(problem, placement.device, sim.QueueOptions(seconds=span_s, warm_up=0.05))
    sinks = report.extra["sinks"].values()
    total = sum(s["records"] for s in sinks)
    return float(sum(s["simulated_s"] * s["records"] for s in sinks) / total) if total else 0.0


def _timed(net: nets.Net, shape: veith.Graph, reading: veith.Preset, settings: int) -> dict[str, float]:
    """Median seconds to place the largest application, the index of the net built beforehand."""
    seconds: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for k in range(settings):
        problem = veith.problem(shape, veith.setting(shape, k, reading), net, reading, seed=k)
        for _ in range(3):
            for name, solve in STRATEGIES.items():
                start = time.perf_counter()
                solve(problem)
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _ten_million(quick: bool, shape: veith.Graph, reading: veith.Preset, seed: int) -> dict[str, Any]:
    """Seconds on 10,000,500 devices; the first placement on a net also builds its index."""
    if quick:
        return {"seconds_10m": None, "first_10m_s": None}
    net = nets.cloud_edge(500, 500, 20_000, seed=seed)
    problem = veith.problem(shape, veith.setting(shape, 0, reading), net, reading)
    start = time.perf_counter()
    aels.solve(problem)
    first_s = time.perf_counter() - start
    return {"seconds_10m": _timed(net, shape, reading, 3), "first_10m_s": first_s}


def _by_size(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for devices in sorted({row["devices"] for row in rows}):
        of_size: dict[str, Any] = {"devices": devices}
        for name in (*STRATEGIES, "best"):
            own = [r["seconds"] for r in rows if r["devices"] == devices and r["strategy"] == name]
            of_size[name] = statistics.median(own)
        out.append(of_size)
    return out


def _over_table(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    out: dict[str, dict[str, list[float]]] = {}
    for kind in NETS:
        out[kind] = {}
        for name in STRATEGIES:
            shares = []
            for application in APPLICATIONS:
                own = [r for r in rows if (r["net"], r["strategy"], r["application"]) == (kind, name, application)]
                shares.append(100 * sum(r["seconds"] > LIMIT_S for r in own) / len(own) if own else 0.0)
            out[kind][name] = shares
    return out


def _cases(rows: list[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Rows grouped by case: strategy → row."""
    grouped: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        key = (row["clouds"], row["sites"], row["devices_per_site"], row["graph"], row["setting"])
        grouped.setdefault(key, {})[row["strategy"]] = row
    return list(grouped.values())


def _gains(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much lower latency is than cloud-only's and TCEP's, over cases where all strategies succeed."""
    sound = [c for c in _cases(rows) if all(row["status"] != "infeasible" for row in c.values())]
    detail: dict[str, Any] = {}
    for rival in ("cloud-only", "tcep"):
        detail[rival] = {"paper": PAPER_GAINS[rival]}
        for name in ("aels-rp-la", "best"):
            for column in ("aggregate_without_windows_s", "aggregate_s"):
                for kind in NETS:
                    per = []
                    for application in APPLICATIONS:
                        own = [c for c in sound if c[name]["net"] == kind and c[name]["application"] == application]
                        per.append(_gain([c[name][column] for c in own], [c[rival][column] for c in own]))
                    detail[rival][f"{name}, {kind} nets, {column}"] = per
    regular = [c for c in sound if c["best"]["net"] == "regular"]

    def overall(rival: str) -> float | None:
        column = "aggregate_without_windows_s"
        return _gain([c["aels-rp-la"][column] for c in regular], [c[rival][column] for c in regular])

    return {
        "gain_over_cloud_only": overall("cloud-only"),
        "gain_over_tcep": overall("tcep"),
        "paper_gain_over_cloud_only": PAPER_GAINS["cloud-only"],
        "paper_gain_over_tcep": PAPER_GAINS["tcep"],
        "gains": detail,
    }


def _gain(own: list[float], rival: list[float]) -> float | None:
    return 1 - float(np.mean(own)) / float(np.mean(rival)) if own else None


def _best_share(rows: list[dict[str, Any]]) -> dict[str, Any]:
    as_good = better = rescued = 0
    cases = _cases(rows)
    for case in cases:
        rival = min(case[name]["aggregate_s"] for name in STRATEGIES)
        own = case["best"]["aggregate_s"]
        as_good += own <= rival * (1 + 1e-12)
        better += own < rival * (1 - 1e-9) and np.isfinite(rival)
        rescued += np.isfinite(own) and not np.isfinite(rival)
    return {
        "best_at_least_as_good": as_good / len(cases),
        "best_better": better / len(cases),
        "best_alone_feasible": rescued / len(cases),
    }


def _infeasible(rows: list[dict[str, Any]]) -> dict[str, float]:
    out = {}
    for name in (*STRATEGIES, "best"):
        own = [r for r in rows if r["strategy"] == name]
        out[name] = sum(r["status"] == "infeasible" for r in own) / len(own)
    return out


def _optimality(net: nets.Net, shapes: list[veith.Graph], reading: veith.Preset, settings: int) -> list[dict[str, Any]]:
    """Proven optima on 250,500 devices, and how far above them the strategies are, windows left out."""
    out = []
    for number in (4, 8, 12):
        for k in range(settings):
            drawn = veith.setting(shapes[number], k, reading)
            problem = veith.problem(shapes[number], drawn, net, reading, seed=k)
            windows = float(problem.step_paths @ problem.window_s)
            proof = exact.solve(problem, Budget(time_s=60.0))
            row: dict[str, Any] = {
                "operators": len(problem.steps),
                "setting": k,
                "status": proof.status,
                "seconds": proof.seconds,
                "gap": proof.gap,
            }
            for name, solve in STRATEGIES.items():
                placement = solve(problem)
                row[name] = (
                    (placement.value - proof.value) / (proof.value - windows) if placement.device is not None else None
                )
            out.append(row)
    return out


def _simulated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [r["simulated_s"] / r["predicted_s"] for r in rows if r.get("predicted_s")]
    if not ratios:
        return {"cases": 0}
    off = [abs(ratio - 1) for ratio in ratios]
    return {
        "cases": len(ratios),
        "mean_ratio": float(np.mean(ratios)),
        "within_2_percent": float(np.mean(np.array(off) < 0.02)),
    }


def table(answer: dict[str, Any]) -> str:
    """The answer as a text table with the paper's figures beside ours."""
    lines = [
        f"aels: {answer['nets']} nets × {answer['settings']} settings, {answer['runs']} runs, "
        f"{answer['over_600_s']} over 600 s, slowest {answer['slowest_s']:.3f} s",
        "",
        "per cent of runs over 600 s, ours (paper), for medium / large / extra-large applications",
    ]
    for kind in NETS:
        for name in STRATEGIES:
            ours, paper = answer["over_600_table"][kind][name], PAPER_OVER_600[kind][name]
            cells = " / ".join(f"{o:.0f} ({p})" for o, p in zip(ours, paper, strict=True))
            lines.append(f"  {kind:<12} {name:<12} {cells}")
    lines += ["", "median seconds by net size: " + ", ".join(("devices", *STRATEGIES, "best"))]
    for row in answer["seconds_by_size"]:
        cells = "  ".join(f"{row[name]:.5f}" for name in (*STRATEGIES, "best"))
        lines.append(f"  {row['devices']:>10,}  {cells}")
    for key in ("seconds_250500x50", "seconds_10m"):
        if answer[key]:
            lines.append(f"{key}: " + ", ".join(f"{n} {s:.4f}" for n, s in answer[key].items()))
    for rival in ("cloud_only", "tcep"):
        own = answer[f"gain_over_{rival}"]
        paper = 100 * answer[f"paper_gain_over_{rival}"]
        share = "no case" if own is None else f"{100 * own:.0f} %"
        lines.append(f"aels-rp-la against {rival}: {share} lower (paper: {paper:.0f} %)")
    lines.append(
        f"best at least as good as every strategy in {100 * answer['best_at_least_as_good']:.1f} % of cases, "
        f"better in {100 * answer['best_better']:.1f} %"
    )
    for row in answer["optimality"]:
        above = ", ".join(f"{n} +{100 * row[n]:.1f} %" for n in STRATEGIES if row[n] is not None)
        lines.append(f"  {row['operators']} operators: {row['status']} in {row['seconds']:.2f} s; above it: {above}")
    lines.append(f"simulated against predicted latency: {answer['simulated']}")
    return "\n".join([*lines, *aels_played.lines(answer["played"])])
