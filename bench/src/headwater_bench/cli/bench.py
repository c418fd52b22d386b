"""`headwater bench NAME`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.run import JSON
from headwater.cli.screen import print_json, progress
from headwater.cli.writable import check_folder
from headwater.engine import RUNNERS
from headwater.engine.policy import POLICIES
from headwater.errors import RunError, listed, suggestion

app = typer.Typer(
    no_args_is_help=True,
    help="Run a named experiment: it checks its own answer, interleaves what it compares and reports ratios.",
)


def _report(name: str, quick: bool, output: Path | None, as_json: bool, **options: Any) -> None:
    check_folder("--output", output)
    module = importlib.import_module(f"headwater_bench.experiments.{name.replace('-', '_')}")
    chosen = {key: value for key, value in options.items() if value is not None}
    with progress(f"running experiment {name}"):
        answer = module.run(quick=quick, output=output, **chosen)
    if as_json:
        print_json(answer)
    else:
        typer.echo(module.table(answer))
        if output is not None:
            typer.echo(f"wrote {output}")


Quick = Annotated[bool, typer.Option(help="a smaller run, for a first look")]
Output = Annotated[Path | None, typer.Option(help="write CSV and plots to this folder")]


@app.command()
def overhead(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """What the engine costs beside a plain loop over the same functions."""
    _report("overhead", quick, output, as_json)


@app.command()
def scheduler(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated")] = None,
    topology: Annotated[list[str] | None, typer.Option(help="only this one, such as 'chain of 20'")] = None,
) -> None:
    """Policies and threads side by side from 50 % to 150 % of capacity, on generated topologies."""
    _report("scheduler", quick, output, as_json, seconds=seconds, repeats=repeats, only=topology)


@app.command()
def rehearsal(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated")] = None,
    topology: Annotated[list[str] | None, typer.Option(help="only this one, such as 'chain of 20'")] = None,
) -> None:
    """Policies and threads for real and in the simulator, side by side: does it rank them as the engine does?"""
    _report("rehearsal", quick, output, as_json, seconds=seconds, repeats=repeats, only=topology)


@app.command()
def predicted(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """What plans expect of steps on one device, by each model of time, beside the simulator and the engine itself."""
    _report("predicted", quick, output, as_json)


@app.command()
def aels(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    preset: Annotated[str | None, typer.Option(help="which reading of the paper's units")] = None,
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time", help="seconds of virtual time to play the placement of every strategy for; the paper has 60"
        ),
    ] = None,
) -> None:
    """Placement on up to ten million devices: the strategies of the AELS paper and ours, its tables beside our numbers.

    Example: headwater bench aels --time 60 --output out/aels
    """
    _report("aels", quick, output, as_json, preset=preset, time_s=time_s)


@app.command()
def mqtt(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement")] = None,
    ekuiper: Annotated[Path | None, typer.Option(help="folder of an eKuiper release, to measure it too")] = None,
) -> None:
    """MQTT in and out: the highest rates of a filter, a mean per sensor and ETL, straight and through mosquitto."""
    _report("mqtt", quick, output, as_json, seconds=seconds, ekuiper=ekuiper)


@app.command()
def sites(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    phase_s: Annotated[
        float | None, typer.Option("--phase", help="seconds that each act lasts once all flows have settled")
    ] = None,
) -> None:
    """Promised flows on a cloud and three cheaper edges that come and fill up: windows kept, records lost, cost, moves.

    Example: headwater bench sites --output out/sites
    """
    _report("sites", quick, output, as_json, phase_s=phase_s)


@app.command("promise-vs-run")
def promise_vs_run(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="for which each plan runs [default: 30]")] = None,
    only: Annotated[list[str] | None, typer.Option(help="plant or aels; several by repeating")] = None,
) -> None:
    """Plans that are run at sites: latency of each path as accounted for, as simulated, and as measured."""
    _report("promise-vs-run", quick, output, as_json, seconds=seconds, only=only)


@app.command("aels-cases")
def aels_cases(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    preset: Annotated[str | None, typer.Option(help="which reading of the paper's units")] = None,
) -> None:
    """The nets and applications that `aels` places: every net built and counted, every parameter within its range."""
    _report("aels-cases", quick, output, as_json, preset=preset)


@app.command("cep-cases")
def cep_cases(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """The CEP paper's example queries, each result held against a plain loop, and its 45 dataflows, counted."""
    _report("cep-cases", quick, output, as_json)


@app.command()
def device(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement at a set rate")] = None,
    records: Annotated[int | None, typer.Option(help="records of a query at its peak")] = None,
) -> None:
    """What CEP queries take of this machine, at their peak and at set rates, and the way between two programs on it."""
    _report("device", quick, output, as_json, seconds=seconds, records=records)


@app.command()
def papers(
    as_json: JSON = False,
    markdown: Annotated[bool, typer.Option(help="print the page docs/papers.md")] = False,
) -> None:
    """Every table and figure of the four papers, with the command that makes it; some have none yet, and say why."""
    from headwater_bench.experiments import papers as listed_papers

    if markdown:
        typer.echo(listed_papers.page(), nl=False)
    elif as_json:
        print_json(listed_papers.run())
    else:
        typer.echo(listed_papers.table(listed_papers.run()))


@app.command("cep-placement")
def cep_placement(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    replicas: Annotated[Path | None, typer.Option(help="a file of replicas instead of those shipped")] = None,
) -> None:
    """Placement of CEP queries on battery-powered edges: brute force, genetic, random, and proven optima."""
    _report("cep-placement", quick, output, as_json, replicas=replicas)


def _configs(runner: str | None, policies: list[str] | None) -> list[str] | None:
    """Return what to compare: a runner alone, or some policies beside threads; None leaves it to the experiment."""
    if runner is not None and runner not in RUNNERS:
        raise RunError(f"there is no runner {runner!r}; runners are {listed(RUNNERS)}{suggestion(runner, RUNNERS)}")
    if runner == "threads":
        return ["threads"]
    if runner == "engine":
        return policies or list(POLICIES)
    return ["threads", *policies] if policies else None


@app.command()
def riot(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    flow: Annotated[
        list[str] | None,
        typer.Option(help="pred, stats, etl or train; several by repeating [default: the first three]"),
    ] = None,
    runner: Annotated[str | None, typer.Option(help="engine or threads alone")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="only these policies of the engine")] = None,
    take: Annotated[
        list[str] | None,
        typer.Option(help="consumption rules to compare: all, half, 50 or 100 [default: all of them, of stats]"),
    ] = None,
    workers: Annotated[
        list[int] | None, typer.Option(help="numbers of workers to compare [default: up to twice the cores, of pred]")
    ] = None,
    padding: Annotated[
        list[int] | None,
        typer.Option(
            help="bytes to make messages longer by, to compare their lengths [default: 1000 and 4000, of pred]"
        ),
    ] = None,
    kernels: Annotated[
        list[str] | None,
        typer.Option(help="release or keep: what kernels do with the interpreter's lock [default: both]"),
    ] = None,
    rates: Annotated[list[float] | None, typer.Option(help="messages/s, instead of shares of capacity")] = None,
    sink: Annotated[str, typer.Option(help="null, broker (started for the runs) or an mqtt:// URL")] = "null",
    wide: Annotated[bool, typer.Option(help="ETL on whole rows instead of a record per observation")] = False,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement [default: 1]")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated [default: 2]")] = None,
) -> None:
    """RIoTBench flows to saturation: the highest rate within a latency bound, for every policy and for threads.

    As it comes, some twenty minutes on two cores: PRED, STATS and ETL, with kernels that release the interpreter's lock and
    with kernels that keep it; consumption rules of STATS, workers and longer messages of PRED. What an option names is tried
    with every flow.
    """
    configs = _configs(runner, policy)
    options = {"flows": flow, "configs": configs, "takes": take, "rates": rates, "seconds": seconds, "repeats": repeats}
    varied = {"workers": workers, "paddings": padding, "kernels": kernels}
    _report("riot", quick, output, as_json, sink=sink, wide=wide, **options, **varied)


@app.command()
def nodes(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="length of one run, simulated or real")] = None,
) -> None:
    """PRED on 1, 2, 4 and 8 simulated machines, threads beside longest queue, and in lanes on this one."""
    _report("nodes", quick, output, as_json, seconds=seconds)


@app.command()
def cep(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    query: Annotated[list[str] | None, typer.Option(help="only this configuration, such as 'Pat3 0.0'")] = None,
    records: Annotated[int | None, typer.Option(help="length of the stream")] = None,
) -> None:
    """The 21 queries of Ghosh & Simmhan: peak rates beside the paper's, and growth over the length of the stream."""
    _report("cep", quick, output, as_json, only=query, records=records)


@app.command()
def peers(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    flow: Annotated[list[str] | None, typer.Option(help="etl, stats or pred; several by repeating")] = None,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement")] = None,
) -> None:
    """ETL, STATS and PRED beside Bytewax and Pathway, which it installs for itself: the highest rate of each."""
    _report("peers", quick, output, as_json, flows=flow, seconds=seconds)


@app.command()
def log(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """How fast the durable log takes records and makes them safe, in this folder; all are read back and compared."""
    _report("log", quick, output, as_json)


@app.command()
def bridge(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """A bridge between two processes, encrypted: records per second, how late they are, and what a cut of the link costs."""
    _report("bridge", quick, output, as_json)


@app.command()
def moves(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    moves: Annotated[int | None, typer.Option(help="how many [default: 200]")] = None,
    seed: Annotated[int | None, typer.Option(help="of the moments, the steps and the faults")] = None,
    calm: Annotated[bool, typer.Option("--calm", help="nobody is killed")] = False,
) -> None:
    """Steps that move from site to site under load, half of the time while somebody is killed: is anything lost or twice?"""
    _report("moves", quick, output, as_json, moves=moves, seed=seed, calm=calm or None)


@app.command()
def lanes(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    flow: Annotated[
        list[str] | None, typer.Option(help="etl, stats, pred, 'etl wide' or 'stats wide'; several by repeating")
    ] = None,
    messages: Annotated[int | None, typer.Option(help="messages of one run [default: those of 6 s]")] = None,
    repeats: Annotated[int | None, typer.Option(help="runs of each [default: 5]")] = None,
) -> None:
    """What a second lane gains: RIoTBench's flows in one process and in two, with the same results."""
    _report("lanes", quick, output, as_json, flows=flow, messages=messages, repeats=repeats)


@app.command()
def length(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    flow: Annotated[list[str] | None, typer.Option(help="etl, stats or pred; several by repeating")] = None,
    times: Annotated[int | None, typer.Option(help="how many times a thousand messages [default: 1000]")] = None,
) -> None:
    """Cost of a message and memory as a stream gets a thousand times as long."""
    _report("length", quick, output, as_json, flows=flow, times=times)


@app.command()
def spark(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    only: Annotated[
        list[str] | None, typer.Option(help="etl, stats, pred, keyed, native, latency or start; several by repeating")
    ] = None,
    messages: Annotated[int | None, typer.Option(help="messages in a run of a flow")] = None,
    sensors: Annotated[int | None, typer.Option(help="how many sensors they come from")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated")] = None,
) -> None:
    """Flows on Spark beside five programs by hand in PySpark, cold and warm; state by key; latency of micro-batches."""
    _report("spark", quick, output, as_json, only=only, messages=messages, sensors=sensors, repeats=repeats)


@app.command()
def backfill(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    rows: Annotated[int | None, typer.Option(help="rows of the table [default: 50 million]")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated")] = None,
) -> None:
    """A flow over a table on Spark, beside the same by hand; its state handed to a stream, on the engine and on Spark."""
    _report("backfill", quick, output, as_json, rows=rows, repeats=repeats)


@app.command()
def cluster(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    messages: Annotated[int | None, typer.Option(help="messages in a run [default: 300,000]")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each measurement is repeated")] = None,
) -> None:
    """STATS on a standalone cluster of two workers beside one core; a worker is killed, and a third joins."""
    _report("cluster", quick, output, as_json, messages=messages, repeats=repeats)


@app.command()
def kills(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    kills: Annotated[int | None, typer.Option(help="how many kills [default: 1000]")] = None,
    long: Annotated[bool, typer.Option("--long", help="10,000 kills")] = False,
    seed: Annotated[int | None, typer.Option(help="of the moments of the kills")] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="part of a case's name, such as MQTT: only those; several")
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(help="URL of a PostgreSQL database [default: a server of our own, where it is installed]"),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(help="brokers of Kafka [default: one of our own, where there are jars]")
    ] = None,
) -> None:
    """The engine killed with SIGKILL, at random and amid checkpoints and commits, over every source and sink here."""
    chosen = {"kills": kills, "seed": seed, "case": case, "postgres": postgres, "kafka": kafka, "long": long or None}
    _report("kills", quick, output, as_json, **chosen)


@app.command("spark-kills")
def spark_kills(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    kills: Annotated[int | None, typer.Option(help="how many kills [default: 24]")] = None,
    seed: Annotated[int | None, typer.Option(help="of who is killed, and when")] = None,
    connector: Annotated[
        bool, typer.Option("--connector", help="write to Kafka by Spark's own connector, which has no transactions")
    ] = False,
) -> None:
    """Kafka → ETL → Kafka and a Delta table on a cluster of Spark: drivers, executors, Python killed at random moments."""
    _report("spark-kills", quick, output, as_json, kills=kills, seed=seed, connector=connector or None)


@app.command()
def checkpoint(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    messages: Annotated[int | None, typer.Option(help="messages of one run [default: 2000000]")] = None,
    repeats: Annotated[int | None, typer.Option(help="runs of each [default: 9]")] = None,
) -> None:
    """What checkpoints cost ETL, how large they are whole and as changes, and how long going on from 100 MB takes."""
    _report("checkpoint", quick, output, as_json, messages=messages, repeats=repeats)


@app.command()
def outages(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seconds: Annotated[float | None, typer.Option(help="for which each server is away [default: 60]")] = None,
    case: Annotated[list[str] | None, typer.Option(help="part of a case's name: only those; several")] = None,
    postgres: Annotated[
        str | None,
        typer.Option(help="URL of a PostgreSQL database [default: a server of our own, where it is installed]"),
    ] = None,
) -> None:
    """Brokers, databases and servers that are away for a while: nothing is lost, and what waits is bounded and counted."""
    _report("outages", quick, output, as_json, seconds=seconds, case=case, postgres=postgres)


@app.command()
def hours(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    hours: Annotated[float | None, typer.Option(help="of event time [default: 2]")] = None,
    hz: Annotated[int | None, typer.Option(help="records in a second of it [default: 20000]")] = None,
    seconds: Annotated[float | None, typer.Option(help="until it is stopped and goes on [default: 15]")] = None,
) -> None:
    """Hours of event time with checkpoints: memory, threads, files and the checkpoint's folder stay as they are."""
    _report("hours", quick, output, as_json, hours=hours, hz=hz, seconds=seconds)


@app.command()
def faults(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    seeds: Annotated[int | None, typer.Option(help="how many seeds [default: 100000]")] = None,
    first: Annotated[int | None, typer.Option(help="the first of them [default: 0]")] = None,
    seed: Annotated[int | None, typer.Option(help="only this one, again")] = None,
    jobs: Annotated[int | None, typer.Option(help="in so many processes [default: one for each processor]")] = None,
) -> None:
    """Checkpoints, the log and bridges on disks and links that fail, by a seeded schedule: is the end as if nothing had?"""
    _report("faults", quick, output, as_json, seeds=seeds, first=first, seed=seed, jobs=jobs)


@app.command()
def curve(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    flow: Annotated[list[str] | None, typer.Option(help="etl, etl_wide, stats, stats_wide or pred; several")] = None,
    on: Annotated[list[str] | None, typer.Option(help="engine, threads or both [default: engine]")] = None,
    seconds: Annotated[float | None, typer.Option(help="length of one measurement")] = None,
) -> None:
    """From 5 % to 120 % of the highest sustained rate: what is delivered, how late, and at what cost per record."""
    _report("curve", quick, output, as_json, flows=flow, on=on, seconds=seconds)


@app.command()
def footprint(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """What Headwater takes: memory, processor time when little happens, disk, and the time to a first result."""
    _report("footprint", quick, output, as_json)


@app.command()
def web(quick: Quick = False, output: Output = None, as_json: JSON = False) -> None:
    """What somebody who looks at the dashboard costs the engine, in cores, and the time until its graph is painted."""
    _report("web", quick, output, as_json)


@app.command()
def rates(
    quick: Quick = False,
    output: Output = None,
    as_json: JSON = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="isolation, admission, burst, hostile, scaling, cost or cores; several by repeating"),
    ] = None,
) -> None:
    """Do promised rates hold? Storm-RTS's figures here, beside threads, longest queue, Dhalion and serverless."""
    _report("rates", quick, output, as_json, only=only)
