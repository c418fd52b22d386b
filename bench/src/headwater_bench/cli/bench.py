"""`headwater bench NAME`."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.parameters import JSON
from headwater.cli.screen import err, print_json, progress
from headwater.cli.writable import check_folder
from headwater.engine import RUNNERS
from headwater.engine.policy import POLICIES
from headwater.errors import RunError, listed, suggestion

app = typer.Typer(
    no_args_is_help=True,
    help="Run a named experiment: it checks its own answer, interleaves what it compares and reports ratios.",
)


Options = dict[str, Any]
Seconds = Annotated[float | None, typer.Option(help="length of one measurement")]
Repeats = Annotated[int | None, typer.Option(help="how often each measurement is repeated")]
Topologies = Annotated[list[str] | None, typer.Option(help="only this one, such as 'chain of 20'")]
Preset = Annotated[str | None, typer.Option(help="which reading of the paper's units")]
Flows = Annotated[list[str] | None, typer.Option(help="etl, stats or pred; several by repeating")]
Postgres = Annotated[
    str | None, typer.Option(help="URL of a PostgreSQL database [default: a server of our own, where it is installed]")
]


def _experiment(options: Callable[..., Options]) -> None:
    """Make the command of an experiment from what it takes besides --quick, --output and --json.

    The function's name is the experiment's; what it returns is for the experiment's `run`, but for what is None.
    """
    name = options.__name__.replace("_", "-")

    @wraps(options)
    def command(quick: bool, output: Path | None, as_json: bool, **words: Any) -> None:
        check_folder("--output", output)
        module = importlib.import_module(f"headwater_bench.experiments.{options.__name__}")
        arguments = {key: value for key, value in options(**words).items() if value is not None}
        if "tell" in inspect.signature(module.run).parameters:  # one that takes minutes says how far it is
            arguments["tell"] = _teller()
        with progress(f"running experiment {name}"):
            answer = module.run(quick=quick, output=output, **arguments)
        if as_json:
            print_json(answer)
        else:
            typer.echo(module.table(answer))
            if output is not None:
                typer.echo(f"wrote {output}")

    own = inspect.signature(options, eval_str=True).parameters.values()
    command.__signature__ = inspect.Signature([*_EVERY, *own])  # type: ignore[attr-defined]  # which Typer reads
    app.command(name)(command)


def _teller() -> Callable[[str], None]:
    """Return what says on standard error how far an experiment is, and after how long."""
    began_s = time.monotonic()

    def tell(text: str) -> None:
        err.print(f"{time.monotonic() - began_s:5.0f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    return tell


def _every(
    quick: Annotated[bool, typer.Option(help="a smaller run, for a first look")] = False,
    output: Annotated[Path | None, typer.Option(help="write CSV and plots to this folder")] = None,
    as_json: JSON = False,
) -> None: ...


_EVERY = inspect.signature(_every, eval_str=True).parameters.values()


@_experiment
def overhead() -> Options:
    """What the engine costs beside a plain loop over the same functions."""
    return {}


@_experiment
def scheduler(seconds: Seconds = None, repeats: Repeats = None, topology: Topologies = None) -> Options:
    """Policies and threads side by side from 50 % to 150 % of capacity, on generated topologies."""
    return {"seconds": seconds, "repeats": repeats, "only": topology}


@_experiment
def rehearsal(seconds: Seconds = None, repeats: Repeats = None, topology: Topologies = None) -> Options:
    """Policies and threads for real and in the simulator, side by side: does it rank them as the engine does?"""
    return {"seconds": seconds, "repeats": repeats, "only": topology}


@_experiment
def predicted() -> Options:
    """What plans expect of steps on one device, by each model of time, beside the simulator and the engine itself."""
    return {}


@_experiment
def aels(
    preset: Preset = None,
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time", help="seconds of virtual time to play the placement of every strategy for; the paper has 60"
        ),
    ] = None,
) -> Options:
    """Placement on up to ten million devices: the strategies of the AELS paper and ours, its tables beside our numbers.

    Example: headwater bench aels --time 60 --output out/aels
    """
    return {"preset": preset, "time_s": time_s}


@_experiment
def mqtt(
    seconds: Seconds = None,
    ekuiper: Annotated[Path | None, typer.Option(help="folder of an eKuiper release, to measure it too")] = None,
) -> Options:
    """MQTT in and out: the highest rates of a filter, a mean per sensor and ETL, straight and through mosquitto."""
    return {"seconds": seconds, "ekuiper": ekuiper}


@_experiment
def sites(
    phase_s: Annotated[
        float | None, typer.Option("--phase", help="seconds that each act lasts once all flows have settled")
    ] = None,
) -> Options:
    """Promised flows on a cloud and three cheaper edges that come and fill up: windows kept, records lost, cost, moves.

    Example: headwater bench sites --output out/sites
    """
    return {"phase_s": phase_s}


@_experiment
def promise_vs_run(
    seconds: Annotated[float | None, typer.Option(help="for which each plan runs [default: 30]")] = None,
    only: Annotated[list[str] | None, typer.Option(help="plant or aels; several by repeating")] = None,
) -> Options:
    """Plans that are run at sites: latency of each path as accounted for, as simulated, and as measured."""
    return {"seconds": seconds, "only": only}


@_experiment
def aels_cases(preset: Preset = None) -> Options:
    """The nets and applications that `aels` places: every net built and counted, every parameter within its range."""
    return {"preset": preset}


@_experiment
def cep_cases() -> Options:
    """The CEP paper's example queries, each result held against a plain loop, and its 45 dataflows, counted."""
    return {}


@_experiment
def device(
    seconds: Annotated[float | None, typer.Option(help="length of one measurement at a set rate")] = None,
    records: Annotated[int | None, typer.Option(help="records of a query at its peak")] = None,
) -> Options:
    """What CEP queries take of this machine, at their peak and at set rates, and the way between two programs on it."""
    return {"seconds": seconds, "records": records}


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


@_experiment
def cep_placement(
    replicas: Annotated[Path | None, typer.Option(help="a file of replicas instead of those shipped")] = None,
) -> Options:
    """Placement of CEP queries on battery-powered edges: brute force, genetic, random, and proven optima."""
    return {"replicas": replicas}


def _configs(runner: str | None, policies: list[str] | None) -> list[str] | None:
    """Return what to compare: a runner alone, or some policies beside threads; None leaves it to the experiment."""
    if runner is not None and runner not in RUNNERS:
        raise RunError(f"there is no runner {runner!r}; runners are {listed(RUNNERS)}{suggestion(runner, RUNNERS)}")
    if runner == "threads":
        return ["threads"]
    if runner == "engine":
        return policies or list(POLICIES)
    return ["threads", *policies] if policies else None


@_experiment
def riot(
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
) -> Options:
    """RIoTBench flows to saturation: the highest rate within a latency bound, for every policy and for threads.

    As it comes, some twenty minutes on two cores: PRED, STATS and ETL, with kernels that release the interpreter's lock and
    with kernels that keep it; consumption rules of STATS, workers and longer messages of PRED. What an option names is tried
    with every flow.
    """
    configs = _configs(runner, policy)
    options = {"flows": flow, "configs": configs, "takes": take, "rates": rates, "seconds": seconds, "repeats": repeats}
    varied = {"workers": workers, "paddings": padding, "kernels": kernels}
    return {"sink": sink, "wide": wide, **options, **varied}


@_experiment
def nodes(
    seconds: Annotated[float | None, typer.Option(help="length of one run, simulated or real")] = None,
) -> Options:
    """PRED on 1, 2, 4 and 8 simulated machines, threads beside longest queue, and in lanes on this one."""
    return {"seconds": seconds}


@_experiment
def cep(
    query: Annotated[list[str] | None, typer.Option(help="only this configuration, such as 'Pat3 0.0'")] = None,
    records: Annotated[int | None, typer.Option(help="length of the stream")] = None,
) -> Options:
    """The 21 queries of Ghosh & Simmhan: peak rates beside the paper's, and growth over the length of the stream."""
    return {"only": query, "records": records}


@_experiment
def peers(flow: Flows = None, seconds: Seconds = None) -> Options:
    """ETL, STATS and PRED beside Bytewax and Pathway, which it installs for itself: the highest rate of each."""
    return {"flows": flow, "seconds": seconds}


@_experiment
def log() -> Options:
    """How fast the durable log takes records and makes them safe, in this folder; all are read back and compared."""
    return {}


@_experiment
def bridge() -> Options:
    """A bridge between two processes, encrypted: records per second, how late they are, and what a cut of the link costs."""
    return {}


@_experiment
def moves(
    moves: Annotated[int | None, typer.Option(help="how many [default: 200]")] = None,
    seed: Annotated[int | None, typer.Option(help="of the moments, the steps and the faults")] = None,
    calm: Annotated[bool, typer.Option("--calm", help="nobody is killed")] = False,
    lanes: Annotated[
        int | None, typer.Option(min=1, help="processes of each part [default: one part, one process]")
    ] = None,
) -> Options:
    """Steps that move from site to site under load, half of the time while somebody is killed: is anything lost or twice?"""
    return {"moves": moves, "seed": seed, "calm": calm or None, "lanes": lanes}


@_experiment
def lanes(
    flow: Annotated[
        list[str] | None, typer.Option(help="etl, stats, pred, 'etl wide' or 'stats wide'; several by repeating")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(help="messages of one run [default: those of 15 s in one lane]")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="runs of each [default: 5]")] = None,
) -> Options:
    """What a second lane gains: RIoTBench's flows in one process and in two, with the same results."""
    return {"flows": flow, "messages": messages, "repeats": repeats}


@_experiment
def length(
    flow: Flows = None,
    times: Annotated[int | None, typer.Option(help="how many times a thousand messages [default: 1000]")] = None,
) -> Options:
    """Cost of a message and memory as a stream gets a thousand times as long."""
    return {"flows": flow, "times": times}


@_experiment
def spark(
    only: Annotated[
        list[str] | None,
        typer.Option(help="etl, stats, pred, kafka, warm, keyed, native, latency or start; several by repeating"),
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(help="of programs: from text to files, from parquet or kafka to a table [default: all]"),
    ] = None,
    messages: Annotated[int | None, typer.Option(help="messages in a run of a flow")] = None,
    sensors: Annotated[int | None, typer.Option(help="how many sensors they come from")] = None,
    repeats: Repeats = None,
) -> Options:
    """Flows on Spark beside five programs by hand in PySpark, cold and warm; state by key; latency of micro-batches."""
    return {"only": only, "ways": way, "messages": messages, "sensors": sensors, "repeats": repeats}


@_experiment
def backfill(
    rows: Annotated[int | None, typer.Option(help="rows of the table [default: 50 million]")] = None,
    repeats: Repeats = None,
) -> Options:
    """A flow over a table on Spark, beside the same by hand; its state handed to a stream, on the engine and on Spark."""
    return {"rows": rows, "repeats": repeats}


@_experiment
def cluster(
    flow: Annotated[str | None, typer.Option(help="etl, stats or pred [default: stats]")] = None,
    messages: Annotated[int | None, typer.Option(help="messages of a lap [default: 260,000]")] = None,
    repeats: Annotated[int | None, typer.Option(help="warm laps that count [default: 3]")] = None,
) -> Options:
    """A flow on a standalone cluster of two workers beside local[1] and one worker; one is killed, and a third joins."""
    return {"flow": flow, "messages": messages, "repeats": repeats}


@_experiment
def kills(
    kills: Annotated[int | None, typer.Option(help="how many kills [default: 1000]")] = None,
    long: Annotated[bool, typer.Option("--long", help="10,000 kills")] = False,
    seed: Annotated[int | None, typer.Option(help="of the moments of the kills")] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="part of a case's name, such as MQTT: only those; several")
    ] = None,
    postgres: Postgres = None,
    kafka: Annotated[
        str | None, typer.Option(help="brokers of Kafka [default: one of our own, where there are jars]")
    ] = None,
) -> Options:
    """The engine killed with SIGKILL, at random and amid checkpoints and commits, over every source and sink here."""
    return {"kills": kills, "seed": seed, "case": case, "postgres": postgres, "kafka": kafka, "long": long or None}


@_experiment
def spark_kills(
    kills: Annotated[int | None, typer.Option(help="how many kills [default: 24]")] = None,
    seed: Annotated[int | None, typer.Option(help="of who is killed, and when")] = None,
    connector: Annotated[
        bool, typer.Option("--connector", help="write to Kafka by Spark's own connector, which has no transactions")
    ] = False,
) -> Options:
    """Kafka → ETL → Kafka and a Delta table on a cluster of Spark: drivers, executors, Python killed at random moments."""
    return {"kills": kills, "seed": seed, "connector": connector or None}


@_experiment
def checkpoint(
    messages: Annotated[int | None, typer.Option(help="messages of one run [default: 2000000]")] = None,
    repeats: Annotated[int | None, typer.Option(help="runs of each [default: 9]")] = None,
) -> Options:
    """What checkpoints cost ETL, how large they are whole and as changes, and how long going on from 100 MB takes."""
    return {"messages": messages, "repeats": repeats}


@_experiment
def outages(
    seconds: Annotated[float | None, typer.Option(help="for which each server is away [default: 60]")] = None,
    case: Annotated[list[str] | None, typer.Option(help="part of a case's name: only those; several")] = None,
    postgres: Postgres = None,
) -> Options:
    """Brokers, databases and servers that are away for a while: nothing is lost, and what waits is bounded and counted."""
    return {"seconds": seconds, "case": case, "postgres": postgres}


@_experiment
def hours(
    hours: Annotated[float | None, typer.Option(help="of event time [default: 2]")] = None,
    hz: Annotated[int | None, typer.Option(help="records in a second of it [default: 20000]")] = None,
    seconds: Annotated[float | None, typer.Option(help="until it is stopped and goes on [default: 15]")] = None,
) -> Options:
    """Hours of event time with checkpoints: memory, threads, files and the checkpoint's folder stay as they are."""
    return {"hours": hours, "hz": hz, "seconds": seconds}


@_experiment
def faults(
    seeds: Annotated[int | None, typer.Option(help="how many seeds [default: 100000]")] = None,
    first: Annotated[int | None, typer.Option(help="the first of them [default: 0]")] = None,
    seed: Annotated[int | None, typer.Option(help="only this one, again")] = None,
    jobs: Annotated[int | None, typer.Option(help="in so many processes [default: one for each processor]")] = None,
) -> Options:
    """Checkpoints, the log and bridges on disks and links that fail, by a seeded schedule: is the end as if nothing had?"""
    return {"seeds": seeds, "first": first, "seed": seed, "jobs": jobs}


@_experiment
def curve(
    flow: Annotated[list[str] | None, typer.Option(help="etl, etl_wide, stats, stats_wide or pred; several")] = None,
    on: Annotated[list[str] | None, typer.Option(help="engine, threads or both [default: engine]")] = None,
    seconds: Seconds = None,
) -> Options:
    """From 5 % to 120 % of the highest sustained rate: what is delivered, how late, and at what cost per record."""
    return {"flows": flow, "on": on, "seconds": seconds}


@_experiment
def footprint() -> Options:
    """What Headwater takes: memory, processor time when little happens, disk, and the time to a first result."""
    return {}


@_experiment
def web() -> Options:
    """What somebody who looks at the dashboard costs the engine, in cores, and the time until its graph is painted."""
    return {}


@_experiment
def rates(
    only: Annotated[
        list[str] | None,
        typer.Option(help="isolation, admission, burst, hostile, scaling, cost or cores; several by repeating"),
    ] = None,
) -> Options:
    """Do promised rates hold? Storm-RTS's figures here, beside threads, longest queue, Dhalion and serverless."""
    return {"only": only}
