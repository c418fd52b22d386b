"""Experiment `device`: figures 2 and 3 of Ghosh and Simmhan, on this machine instead of a Raspberry Pi.

Figure 2 has what a query draws, at its peak rate and at set rates. Most machines cannot read the current of a battery, so
what stands behind it is told: the share of a core that each query uses, and watts where a counter (RAPL) may be read.
Figure 3 has latency and bandwidth between two devices. Here it is two threads and loopback, which is no network: the floor
under one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.engine import energy, machine
from headwater.flow import Flow
from headwater.io import Discard, Generate
from headwater_bench.cases import ghosh
from headwater_bench.experiments import cep, cep_queries, loopback
from headwater_bench.experiments.plots import figure
from headwater_bench.experiments.rows import text_table, write_rows

STEADY = ("Fil 1.0", "Seq3 1.0", "Seq5 1.0", "Pat3 1.0", "Pat5 1.0", "AggB 60", "AggS 60")
"""The queries whose draw is measured at several rates."""
RATES = (100, 1_000, 10_000)
PAPER_LINKS = {"pi - pi": (ghosh.LAN_S, ghosh.LAN_BPS), "pi - azure": (ghosh.WAN_S, ghosh.WAN_BPS)}
"""Quartiles of latency and bandwidth, read off the paper's figure 3."""


def run(
    quick: bool = False, output: Path | None = None, *, seconds: float | None = None, records: int | None = None
) -> dict[str, Any]:
    """Measure every query at its peak, some at set rates for `seconds` each, and the way between two threads."""
    span = seconds or (0.3 if quick else 3.0)
    count = records or (100_000 if quick else 2_000_000)
    peak = cep.run(records=count, only=[config.name for config in cep_queries.configs()])["queries"]
    configs = {config.name: config for config in cep_queries.configs()}
    steady = [_at_rate(configs[name], rate, span) for name in (STEADY[:2] if quick else STEADY) for rate in RATES]
    pings, transfers = loopback.pings_s(200 if quick else 2_000), loopback.bandwidths_bps(5 if quick else 20, 32)
    meter = energy.meter()
    answer: dict[str, Any] = {
        "machine": machine.name(),
        "records": count,
        "seconds": span,
        "energy": {"readable": not isinstance(meter, str)} | ({"why": meter} if isinstance(meter, str) else {}),
        "peak": [_at_peak(name, row) for name, row in peak.items()],
        "steady": steady,
        "links": {
            "latency_s": loopback.quartiles(pings),
            "bandwidth_bps": loopback.quartiles(transfers),
            "paper": {link: {"latency_s": at[0], "bandwidth_bps": at[1]} for link, at in PAPER_LINKS.items()},
        },
    }
    if output is not None:
        write_rows([*answer["peak"], *steady], output / "figure2.csv")
        write_rows(
            [{"kind": "latency_s", "value": v} for v in pings]
            + [{"kind": "bandwidth_bps", "value": v} for v in transfers],
            output / "figure3.csv",
        )
        (output / "device.txt").write_text(table(answer) + "\n")
        _draw_queries(answer, output / "figure2.png")
        _draw_links(pings, transfers, output / "figure3.png")
    return answer


def _at_peak(name: str, row: dict[str, Any]) -> dict[str, Any]:
    query = ghosh.QUERIES.get(name)
    return {
        "query": name,
        "rate": "peak",
        "records_per_s": row["rate"],
        "core_share": row["cpu_share"],
        "cpu_ns_per_record": row["cpu_ns"],
        "paper_pi_ma": query.pi_ma if query else None,
    }


def _at_rate(config: cep_queries.Config, rate: int, seconds: float) -> dict[str, Any]:
    """Run a query on the engine at a set rate; what it puts out is checked before its cost is told."""
    count = max(1, int(rate * seconds))
    flow = Flow("steady")
    source = Generate(
        lambda numbers: {"height": config.values(int(numbers[0]), int(numbers[-1]) + 1)},
        {"height": int},
        rate,
        count=count,
    )
    flow.read("inStream", source)
    flow.query("query", config.query).write("out", Discard())
    meter = energy.meter()
    began, worked, joules = time.perf_counter(), time.process_time(), 0.0 if isinstance(meter, str) else meter.joules()
    report = engine.run(flow, workers=1)
    passed, work = time.perf_counter() - began, time.process_time() - worked
    out, (least, most) = report.last.records_out["out"], config.results(count)
    if report.last.records_in != count or not least <= out <= most:
        raise AssertionError(
            f"{config.name} at {rate}/s: {report.last.records_in} in, {out} out, expected {least} to {most}"
        )
    return {
        "query": config.name,
        "rate": rate,
        "records_per_s": round(count / passed),
        "core_share": work / passed,
        "cpu_ns_per_record": 1e9 * work / count,
        **({} if isinstance(meter, str) else {"watts": (meter.joules() - joules) / passed}),
    }


def table(answer: dict[str, Any]) -> str:
    """What each query takes, and the way between two threads, the paper's figures beside them."""
    peak = [
        (
            row["query"],
            f"{row['records_per_s']:,}",
            f"{row['core_share']:.2f}",
            f"{row['cpu_ns_per_record']:,.1f}",
            "-" if row["paper_pi_ma"] is None else f"{row['paper_pi_ma']:.0f}",
        )
        for row in answer["peak"]
    ]
    steady = [(row["query"], f"{row['rate']:,}", f"{row['core_share']:.4f}") for row in answer["steady"]]
    links = answer["links"]
    drawn = "watts are in the CSV" if answer["energy"]["readable"] else answer["energy"]["why"]
    own = (
        [f"{1e3 * links['latency_s'][at]:.4f} ms" for at in (1, 2, 3)],
        [f"{links['bandwidth_bps'][at] / 1e6:,.0f}" for at in (1, 2, 3)],
    )
    return "\n".join(
        [
            f"figure 2a on {answer['machine']}: queries at their peak, one core; {drawn}",
            *text_table(("query", "records/s", "share of a core", "ns/record", "paper: mA of a Pi 2"), peak),
            "",
            f"figure 2b: share of a core at set rates, {answer['seconds']:g} s each, the engine and its source included",
            *text_table(("query", "records/s", "share of a core"), steady),
            "",
            "figure 3: quartiles of latency and of bandwidth in Mbit/s",
            f"here, two threads over loopback (no network): {', '.join(own[0])}; {', '.join(own[1])}",
            *(
                f"paper, {link}: {', '.join(f'{1e3 * v:g} ms' for v in at['latency_s'])}; "
                f"{', '.join(f'{v / 1e6:g}' for v in at['bandwidth_bps'])}"
                for link, at in links["paper"].items()
            ),
        ]
    )


def _draw_queries(answer: dict[str, Any], path: Path) -> None:
    fig, axes = figure(1, 2, 14, 4.6)
    left, right = axes[0]
    names = [row["query"] for row in answer["peak"]]
    left.bar(names, [row["cpu_ns_per_record"] for row in answer["peak"]], color="#1f77b4")
    left.tick_params(axis="x", rotation=75, labelsize=8)
    left.set(yscale="log", ylabel="processor time, ns per record", title="a: at peak, one core busy")
    beside = left.twinx()
    beside.plot(names, [row["paper_pi_ma"] or float("nan") for row in answer["peak"]], "x", color="#d62728")
    beside.set(ylabel="× the paper: mA of a Pi 2", ylim=(200, 420))
    for at, rate in enumerate(RATES):
        mine = [row for row in answer["steady"] if row["rate"] == rate]
        places = [number + (at - 1) * 0.27 for number in range(len(mine))]
        right.bar(places, [100 * row["core_share"] for row in mine], 0.27, label=f"{rate:,}/s")
        right.set_xticks(range(len(mine)), [row["query"] for row in mine], rotation=45, fontsize=8)
    right.set(ylabel="% of a core", title="b: at set rates")
    right.legend(fontsize=8)
    fig.suptitle(f"figure 2: what queries draw on {answer['machine']}")
    fig.savefig(path, dpi=110)


def _draw_links(pings: list[float], transfers: list[float], path: Path) -> None:
    fig, axes = figure(1, 2, 10, 4.2)
    here = ([1e3 * v for v in pings], [v / 1e6 for v in transfers])
    titles = (("a: latency", "ms, one way", 1e3), ("b: bandwidth", "Mbit/s", 1e-6))
    for axis, own, (title, label, unit), which in zip(axes[0], here, titles, (0, 1), strict=True):
        boxes = [{"med": q2, "q1": q1, "q3": q3, "whislo": q1, "whishi": q3} for q1, q2, q3 in
                 (tuple(unit * v for v in at[which]) for at in PAPER_LINKS.values())]  # fmt: skip
        axis.boxplot([own], positions=[1], showfliers=False, widths=0.5)
        axis.bxp(boxes, positions=[2, 3], showfliers=False, widths=0.5)
        axis.set_xticks([1, 2, 3], ["loopback, here", *(f"paper, {link}" for link in PAPER_LINKS)], fontsize=8)
        axis.set(title=title, ylabel=label, yscale="log")
    fig.suptitle("figure 3: between two devices")
    fig.savefig(path, dpi=110)
