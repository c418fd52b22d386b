"""`headwater demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from headwater.cli.run import JSON
from headwater.cli.screen import console, err, print_json, steps_table
from headwater.engine import Run


def demo(
    output: Annotated[Path, typer.Option(help="folder for the plot and the figures")] = Path("out/demo"),
    seconds: Annotated[float, typer.Option(help="how long the city's sensors send")] = 8.0,
    as_json: JSON = False,
) -> None:
    """Play a city of sensors over MQTT, then overload the same flow on the engine and on threads, side by side."""
    from headwater.bench import demo as acts

    if not as_json:
        console.rule("A city: sensors → MQTT → ETL → MQTT → STATS and PRED")
    answer = acts.run(output, seconds=seconds, show=lambda run: _follow(run, seconds, quiet=as_json))
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _follow(run: Run, seconds: float, *, quiet: bool) -> None:
    """Show the running ETL for a while: live on a terminal, once at the end elsewhere."""
    if quiet:
        return
    before = run.sample()
    if err.is_terminal:
        with Live(console=err, refresh_per_second=4) as view:
            while run.sample().at_s < seconds and run.wait(0.5) is None:
                now = run.sample()
                view.update(steps_table(now, before, f"ETL, live: {now.at_s:.0f} s"))
                before = now
    else:
        run.wait(seconds * 0.9)
        console.print(steps_table(run.sample(), before, "ETL after most of the time"))


def _print(answer: dict[str, Any]) -> None:
    city = answer["city"]
    table = Table(title=f"{city['sent']:,} messages sent by sensors", title_justify="left", header_style="bold")
    for name in ("flow", "records in", "records out", "dead letters", "p50 ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "flow" else "right")
    for name in ("etl", "stats", "pred"):
        told = city[name]
        out = ", ".join(f"{sink} {count:,}" for sink, count in told["records_out"].items())
        latency = told["latency_ms"]
        table.add_row(
            name,
            f"{told['records_in']:,}",
            out,
            str(told["dead_letters"]),
            f"{latency['p50']:.1f}",
            f"{latency['p99']:.1f}",
        )
    console.print(table)
    overload = answer["overload"]
    console.rule(f"Overload: ETL's capacity here is about {overload['capacity_hz']:,} messages/s")
    table = Table(header_style="bold")
    table.add_column("load")
    for on in ("engine", "threads"):
        for name in ("messages/s", "p50 ms", "p99 ms"):
            table.add_column(f"{on} {name}", justify="right")
    for ours, theirs in zip(overload["engine"]["phases"], overload["threads"]["phases"], strict=False):
        cells = [f"{ours['load']:.0%}"]
        for phase in (ours, theirs):
            cells += [f"{phase['out_hz']:,}", f"{phase['p50_ms']:,.1f}", f"{phase['p99_ms']:,.1f}"]
        table.add_row(*cells)
    console.print(table)
    console.print(f"plot: {answer['output']}/overload.png, figures: {answer['output']}/overload.csv")
