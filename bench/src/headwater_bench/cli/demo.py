"""`headwater demo`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from headwater.cli.parameters import JSON
from headwater.cli.screen import console, err, print_json, steps_table
from headwater.cli.writable import check_folder
from headwater.errors import RunError, listed, suggestion
from headwater.run import Run


def demo(
    act: Annotated[
        str,
        typer.Argument(
            help="city: sensors over MQTT and an overload; loop: to Spark and back; sites: a policy moves promised flows"
        ),
    ] = "city",
    output: Annotated[
        Path | None, typer.Option(help="folder for the plot and the figures [default: out/demo or out/loop]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="city: how long its sensors send")] = 8.0,
    as_json: JSON = False,
) -> None:
    """Play a city of sensors.

    `city`: over MQTT to ETL, STATS and PRED; then the same flow overloaded, on the engine and on threads, side by side.
    `loop`: sensors to a gateway to Spark, which trains a model that goes back to the gateway; one to two minutes.
    `sites`: three promised flows on a cloud and three cheaper edges, which come and fill up; two to three minutes.
    """
    if act not in _ACTS:
        raise RunError(f"there is no demonstration {act!r}; known are {listed(_ACTS)}{suggestion(act, _ACTS)}")
    check_folder("--output", output)
    if act == "sites":
        sites(output or Path("out/sites"), as_json=as_json)
    elif act == "loop":
        loop(output or Path("out/loop"), as_json=as_json)
    else:
        city(output or Path("out/demo"), seconds, as_json=as_json)


_ACTS = ("city", "loop", "sites")
_ACT_S = 4.0  #: that each act of the sites lasts, besides the moves


def city(output: Path, seconds: float, *, as_json: bool) -> None:
    """Play the city and its overload."""
    from headwater_bench.experiments import demo as acts

    if not as_json:
        console.rule("A city: sensors → MQTT → ETL → MQTT → STATS and PRED")
    answer = acts.run(output, seconds=seconds, show=lambda run: _follow(run, seconds, quiet=as_json))
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    if not answer["overload"]["is_overload"]:
        err.print(
            "the engine delivered all that was offered as an overload; is the machine busy? Run the demo once more"
        )
        raise typer.Exit(1)


def loop(output: Path, *, as_json: bool) -> None:
    """Play the loop from sensors to Spark and back."""
    from headwater_bench.experiments import loop as acts

    if not as_json:
        console.rule(
            "The loop: sensors → gateway (ETL, PRED) → MQTT → Spark (ETL, STATS, TRAIN) → a new model → gateway"
        )
    began = time.monotonic()
    answer = acts.run(output, tell=lambda text: err.print(f"{time.monotonic() - began:5.0f} s  {text}"))
    if as_json:
        print_json(answer)
    else:
        _print_loop(answer)
    if not answer["complete"]:
        err.print("the loop did not come to its end in time; is the machine busy?")
        raise typer.Exit(1)


def sites(output: Path, *, as_json: bool) -> None:
    """Play figure 12 of Storm-RTS, short."""
    from headwater_bench.experiments import sites as acts

    if shutil.which("openssl") is None:
        raise RunError("sites have certificates, which are made with the program openssl; install it first")
    if not as_json:
        console.rule("Sites: a cloud and three cheaper edges; the policy min-cost moves ETL, STATS and PRED")
    began = time.monotonic()
    answer = acts.run(True, output, _ACT_S, tell=lambda text: err.print(f"{time.monotonic() - began:5.0f} s  {text}"))
    if as_json:
        print_json(answer)
    else:
        console.print(acts.table(answer), markup=False, highlight=False)
        console.print(f"plot: {answer['picture']}, figures beside it")


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
        figures = city[name]
        out = ", ".join(f"{sink} {count:,}" for sink, count in figures["records_out"].items())
        latency = figures["latency_ms"]
        table.add_row(
            name,
            f"{figures['records_in']:,}",
            out,
            str(figures["dead_letters"]),
            f"{latency['p50']:.1f}",
            f"{latency['p99']:.1f}",
        )
    console.print(table)
    overload = answer["overload"]
    scale = overload["scale"]
    console.rule(f"Overload: ETL's {scale['name']} here is about {scale['hz']:,.0f} messages/s")
    if overload["restless"]:
        console.print(_restless(overload), highlight=False)
    elif scale["name"] != "capacity":
        console.print(
            "What was found for its capacity was too low: the overload was none, and is played again from full speed.",
            highlight=False,
        )
    table = Table(header_style="bold")
    table.add_column(f"of {scale['name']}")
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


def _restless(overload: dict[str, Any]) -> str:
    from headwater_bench.experiments.trial import cores

    return (
        f"The machine was too restless to find the highest rate that ETL sustains: in {overload['visits']} trials, rates"
        f" were kept at one time and missed at another, while other programs had {overload['others']:.1f} of"
        f" {cores()} processors. So what is offered are shares of what it works off at full speed, which is more."
    )


def _print_loop(answer: dict[str, Any]) -> None:
    table = Table(title="how far the gateway's forecasts were off", title_justify="left", header_style="bold")
    for name in ("with", "for s", "forecasts", "RMSE"):
        table.add_column(name, justify="left" if name == "with" else "right")
    for phase in answer["phases"]:
        rmse = "-" if phase["rmse"] is None else f"{phase['rmse']:.2f}"
        table.add_row(phase["phase"], f"{phase['seconds']:.0f}", f"{phase['forecasts']:,}", rmse)
    console.print(table)
    table = Table(title="what Spark learned", title_justify="left", header_style="bold")
    for name in ("revision", "rows", "took s", "RMSE on its rows", "RMSE of the one before", "tree's accuracy"):
        table.add_column(name, justify="right")
    for each in answer["trained"]:
        line, tree = each["regression"], each["tree"]
        before = f"{line['before_rmse']:.2f}" if "before_rmse" in line else "-"
        cells = [str(line["revision"]), f"{line['rows']:,.0f}", f"{each['seconds']:.1f}", f"{line['rmse']:.2f}"]
        table.add_row(*cells, before, f"{tree['accuracy']:.1%}")
    console.print(table)
    table = Table(title="what each flow did", title_justify="left", header_style="bold")
    for name in ("flow", "records in", "per s", "records out", "p50 ms", "refused"):
        table.add_column(name, justify="left" if name == "flow" else "right")
    for name, figures in answer["flows"].items():
        out = ", ".join(f"{sink} {count:,}" for sink, count in figures["records_out"].items())
        rate = f"{figures['records_in'] / figures['seconds']:,.0f}"
        latency = figures["latency_ms"].get("p50")
        text = "-" if latency is None else f"{latency:,.1f}"
        table.add_row(name, f"{figures['records_in']:,}", rate, out, text, str(figures["dead_letters"]))
    console.print(table)
    for name, figures in answer["flows"].items():
        for reason in figures["refused"]:
            console.print(f"{name} refused: {reason}", highlight=False)
    console.print(f"plot: {answer['output']}/loop.png, models: {answer['output']}/models, tables beside them")
