"""`headwater run FLOW`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from headwater.cli.forward import with_forwarding
from headwater.cli.keeping import leave_to_lane
from headwater.cli.locate import find_flow
from headwater.cli.parameters import FLOW, JSON, parse_lanes
from headwater.cli.plugins import spark_job
from headwater.cli.promise import GivingWay, can_keep, contract_of, start_promised, start_promised_on_spark
from headwater.cli.rewire import rewire, source_of
from headwater.cli.screen import console, err, live, print_json, print_report, progress
from headwater.cli.signals import held_signals, let_go_of_signals, stop_on_signals
from headwater.cli.site_web import check_dashboard
from headwater.cli.spark_options import (
    AVAILABLE_NOW,
    BACKFILL,
    BUCKETS,
    CONF,
    DURATION,
    HISTORY_ONLY,
    INPUT,
    MEANING,
    ORDER_BY,
    OUTPUT,
    PROMETHEUS,
    TARGET,
    UNTIL,
    check_history,
    parse_metrics_address,
    parse_settings,
)
from headwater.cli.stdout import carries_records, writes_nowhere_else
from headwater.cli.unread import is_unread
from headwater.cli.writable import check_folder
from headwater.data.jit import answering_at_once
from headwater.engine import RUNNERS, Options, start
from headwater.engine.memory import keep_freed, share_arenas
from headwater.engine.options import HANG, LINGER, OnHang, WhenFull
from headwater.engine.policy import DEFAULT, POLICIES
from headwater.engine.scheduler import Take
from headwater.errors import FlowError, RunError, listed, suggestion
from headwater.flow.contract import rate_hz
from headwater.flow.duration import microseconds_of
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.io.urls import path_in, without_password
from headwater.metrics import Report

_SPARK = "spark"


def run(
    flow: FLOW,
    on: Annotated[
        str, typer.Option(help="which runner: engine (worker pool), threads (one per step) or spark")
    ] = "engine",
    policy: Annotated[str, typer.Option(help=f"who is served next: {', '.join(POLICIES)}")] = DEFAULT,
    take: Annotated[
        str, typer.Option(help="of the waiting records, taken in one activation: all, half, or a number")
    ] = "all",
    workers: Annotated[int | None, typer.Option(help="worker threads [default: one for each core]")] = None,
    lanes: Annotated[
        str | None, typer.Option(help="processes of one worker each: a number, or auto for one on each core")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="replay the sources at this many records/s, open loop, again and again until --for or Ctrl-C"
        ),
    ] = None,
    duration: DURATION = None,
    input: INPUT = None,
    output: OUTPUT = None,
    when_full: Annotated[str, typer.Option(help="at a full queue: block, spill or shed")] = "block",
    linger: Annotated[
        str, typer.Option(help="how long records gather before they are read, by default 6 to 15 ms; 0s for none")
    ] = LINGER,
    hang: Annotated[str, typer.Option(help="a step that is at the same records for longer hangs")] = HANG,
    on_hang: Annotated[str, typer.Option(help="what is done about a step that hangs: warn or stop")] = "warn",
    queue_records: Annotated[int, typer.Option(help="bound of each queue in records")] = 10_000,
    queue_mb: Annotated[int, typer.Option(help="bound of each queue in megabytes")] = 64,
    master: Annotated[
        str | None, typer.Option(help="where Spark runs, such as spark://host:7077 [default: here]")
    ] = None,
    conf: CONF = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="keep in this folder, on Spark also at a URL, how far the run has come, and go on from there"
        ),
    ] = None,
    meaning: MEANING = None,
    target: TARGET = None,
    backfill: BACKFILL = None,
    until: UNTIL = None,
    order_by: ORDER_BY = None,
    history_only: HISTORY_ONLY = False,
    trainer: Annotated[
        str | None,
        typer.Option(help="of riot:train on Spark: exact, the same models as the engine's [default], or mllib"),
    ] = None,
    forward: Annotated[
        str | None,
        typer.Option(
            help="have records for sinks with a network behind them wait in this folder: DIR[,bytes=1 GB][,age=7 days]"
            "[,full=hold|drop oldest|drop lowest][,priority=COLUMN][,order=oldest|newest][,rate=1 MB/s][,linger=10 s]"
        ),
    ] = None,
    dead: Annotated[
        Path | None, typer.Option(help="keep dead letters in this folder, for headwater dead list|show|replay")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="on the engine: how often a checkpoint is made [default: 5 s]; on Spark: how often a micro-batch begins, "
            "at most [default: at once after the last]"
        ),
    ] = None,
    available_now: AVAILABLE_NOW = False,
    buckets: BUCKETS = None,
    allow_dropped_state: Annotated[
        bool, typer.Option("--allow-dropped-state", help="go on although the flow has lost steps that kept state")
    ] = False,
    promise: Annotated[
        str | None, typer.Option(help="promise the flow a rate, such as 20000/s [default: the flow's own contract]")
    ] = None,
    within: Annotated[str | None, typer.Option(help="with --promise: and a latency, such as 50ms")] = None,
    above: Annotated[
        str | None,
        typer.Option(help="with --promise: what is above the rate is served as 'best effort', shed, or made to block"),
    ] = None,
    burst: Annotated[
        float | None, typer.Option(help="with --promise: records at once on top of the rate [default: those of 0.1 s]")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="with a promise: a profile made with --contract [default: measured now]")
    ] = None,
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="run a promised flow even where nothing can be reserved for it")
    ] = False,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="run a promised flow before everything that is not of real time")
    ] = False,
    show: Annotated[bool, typer.Option("--live", help="show a live table of all steps")] = False,
    prometheus: PROMETHEUS = None,
    web: Annotated[
        bool, typer.Option("--web", help="show the run in a browser; the link that it prints lets whoever has it look")
    ] = False,
    web_listen: Annotated[
        str | None,
        typer.Option(
            help="with --web: address and port of the dashboard [default: any port of 127.0.0.1 that is free]"
        ),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Run a flow to its end; Ctrl-C stops reading and drains, a second one stops at once, a third does not wait for it."""
    share_arenas()
    if lanes is not None:
        keep_freed()
    counts = {"workers": workers, "queue-records": queue_records, "queue-mb": queue_mb, "buckets": buckets}
    for option, count in counts.items():
        if count is not None and count < 1:
            raise RunError(f"--{option} is a whole number above 0; got {count}")
    durations = (("linger", linger), ("hang", hang), ("every", every), ("within", within), ("target", target))
    for option, text in durations:
        if (
            text is not None
            and text != LINGER
            and not microseconds_of(f"--{option}", text)
            and option not in ("linger", "within")
        ):
            raise RunError(f"--{option} is a time above 0; got {text!r}")
    seconds = microseconds_of("--for", duration) / 1e6 if duration is not None else None
    if seconds == 0:
        raise RunError(f"--for is how long the flow reads, above 0; got {duration!r}")
    for option, choice, choices in (("when-full", when_full, WhenFull), ("on-hang", on_hang, OnHang)):
        if choice not in (allowed := get_args(choices)):
            raise RunError(f"--{option} is one of {listed(allowed)}; got {choice!r}{suggestion(choice, allowed)}")
    check_folder("--output", output)
    web_at = check_dashboard(web, web_listen, "127.0.0.1:0")
    if prometheus is not None:
        from headwater.web.prometheus import check_port, serve

        metrics_at = parse_metrics_address(prometheus)
        check_port(*metrics_at)
    engines: dict[str, Any] = {
        "policy": policy,
        "take": parse_take(take),
        "when_full": when_full,
        "queue_records": queue_records,
        "queue_bytes": queue_mb * 2**20,
        "workers": workers,
        "linger": linger,
        "hang": hang,
        "on_hang": on_hang,
        "lanes": parse_lanes(lanes),
        "dead": dead,
        "every": None if on == _SPARK else every,
        "allow_dropped_state": allow_dropped_state or None,
    }
    per_s = None if rate is None else _parse_rate(rate)
    if dead is not None and dead.is_file():
        raise RunError(f"--dead names a folder for dead letters; {str(dead)!r} is a file")
    if on not in (*RUNNERS, _SPARK):
        allowed = (*RUNNERS, _SPARK)
        raise RunError(f"there is no runner {on!r}; runners are {listed(allowed)}{suggestion(on, allowed)}")
    settings = parse_settings(conf or [])
    sparks: dict[str, Any] = {
        "master": master, "conf": conf or None, "target": target, "backfill": backfill, "meaning": meaning,
        "available_now": available_now or None, "buckets": buckets,
    }  # fmt: skip
    _refuse_others(on, {**engines, "forward": forward}, sparks)
    checkpoint_folder = _checkpoint_folder(checkpoint, on)
    _check_checkpoint(
        checkpoint, {"every": engines["every"], "allow-dropped-state": allow_dropped_state, "backfill": backfill}
    )
    check_history(backfill, {"until": until, "order-by": order_by, "history-only": history_only})
    if history_only and (web or prometheus is not None):
        option = "--web" if web else "--prometheus"
        raise RunError(f"{option} shows a stream, and --history-only ends before there is one")
    if history_only and (every is not None or available_now):
        option = "--available-now" if available_now else "--every"
        raise RunError(f"{option} is about the stream, and --history-only ends before there is one")
    if on == _SPARK and (job := spark_job(flow)):
        others = {
            "rate": per_s,
            "for": duration,
            "conf": conf or None,
            "checkpoint": checkpoint,
            "target": target,
            "every": every,
            "available-now": available_now or None,
            "buckets": buckets,
            "meaning": meaning,
            "backfill": backfill,
            "live": show or None,
            "prometheus": prometheus,
            "web": web or None,
            "trainer": trainer,
        }
        let_go_of_signals()
        job.show(job.run(input, None if output is None else Path(output), master, others), as_json)
        return
    if trainer is not None:
        raise RunError("--trainer chooses how riot:train learns with --on spark, and means nothing otherwise")
    if on == _SPARK and promise is None:
        _prepare_spark(master, settings)
    with answering_at_once():  # making a flow may need kernels too
        dataflow = rewire(find_flow(flow), inputs=input, output=output, rate=per_s)
    if forward is not None:
        dataflow, beside = with_forwarding(dataflow, forward, checkpoint=checkpoint is not None)
        if beside:
            err.print(f"--forward means nothing to {listed(beside)}: with a checkpoint its records wait beside that")
    to = err if carries_records(dataflow, as_json=as_json) else console
    contract = contract_of(dataflow, promise, within, above, burst)
    if contract is not None and (not can_keep(on, contract) or _is_submitted(on)):
        if promise is not None and on != _SPARK:
            raise RunError(f"--promise means nothing with --on {on}: rates are promised on the engine and on Spark")
        if promise is None:
            where = "spark-submit" if _is_submitted(on) else f"--on {on}"
            err.print(f"flow {dataflow.name} has a contract, which {where} does not keep: it runs as fast as it can")
            contract = None
    if contract is None or on == _SPARK:
        _refuse_of_promise(contract is not None, realtime=realtime, best_effort=best_effort, profile=profile)
    running: Any = None
    way = GivingWay()
    if contract is not None and on == "engine":
        leave_to_lane()
    if on == _SPARK:
        if contract is not None:
            _leave_spark()
        if contract is not None and (target is not None or every is not None):
            option = "--every" if target is None else "--target"
            raise RunError(f"{option} means nothing with a promise, which says itself how long a micro-batch may take")
        if meaning is not None and (contract is not None or backfill):
            other = "--backfill" if backfill else "a promise"
            raise RunError(f"--meaning means nothing with {other}, which needs all steps to be ours")
        of_spark: dict[str, Any] = {
            "master": master,
            "settings": settings,
            "checkpoint": checkpoint_folder or checkpoint,
        }
        of_spark |= {} if buckets is None else {"buckets": buckets}
        if backfill:
            tables = dict(source_of(dataflow, table, "--backfill NAME=TABLE") for table in backfill)
            if contract is None:
                way.begin()
            history = _history(dataflow, tables, show, way, until=until, order_by=order_by, **of_spark)
            if history_only or not history.extra["backfill"]["done"]:
                _show(history, as_json=as_json, to=to)
                return
            err.print(
                f"history is read: {history.last.records_in:,} records in {history.seconds:.1f} s; the stream goes on"
            )
        of_spark |= {"available_now": True} if available_now else {}
        if contract is not None:
            of_spark |= {"profile": profile, "best_effort": best_effort, "seconds": seconds}
            running = start_promised_on_spark(dataflow, contract, **of_spark)
        else:
            from headwater import spark

            way.begin()
            with progress("starting Spark"):
                of_spark |= {} if meaning is None else {"meaning": meaning}
                of_spark |= {} if every is None else {"every": f"{microseconds_of('--every', every) / 1e6} seconds"}
                running = spark.start(dataflow, **of_spark, target=target, seconds=seconds)
    with stop_on_signals() as attach:
        if running is None and contract is not None and held_signals():
            contract = None  # it is to end as soon as it has started: nothing has to be measured and tried for that
        if running is None and contract is not None:
            running = start_promised(
                dataflow,
                contract,
                engines,
                profile=profile,
                best_effort=best_effort,
                realtime=realtime,
                seconds=seconds,
                checkpoint=checkpoint_folder,
            )
        elif running is None:
            way.begin()
            engine_options = {name: value for name, value in engines.items() if value is not None}
            running = start(dataflow, on=on, seconds=seconds, checkpoint=checkpoint_folder, **engine_options)
        attach(running)
        try:
            with ExitStack() as last:
                if prometheus is not None:
                    metrics = serve(running, *metrics_at)
                    last.callback(metrics.server_close)
                    last.callback(metrics.shutdown)
                if web:
                    from headwater.cli.web import dashboard_of_run

                    last.enter_context(dashboard_of_run(running, web_at, checkpoint_folder, dead))
                status_line = getattr(running, "status_line", None)
                report = live(running, way.look) if show else _wait(running, status_line, way.look)
        except RunError as error:
            if error.report is not None and not (is_unread(error) and writes_nowhere_else(running.flow)):
                _show(error.report, as_json=as_json, to=to)
            raise
    _show(report, as_json=as_json, to=to)
    exit_if_all_are_dead(running.flow, report)


def _prepare_spark(master: str | None, settings: dict[str, str]) -> None:
    """Have Java start while the flow is loaded, unless what runs here has to give way to promises first."""
    from headwater.rate.home import SOCKET, folder
    from headwater.spark.session import prepare

    if not (folder() / SOCKET).exists():
        prepare(master, settings)


def _is_submitted(on: str) -> bool:
    """Say whether spark-submit has started this: on a Spark that others have chosen, no cores can be reserved."""
    if on != _SPARK:
        return False
    from headwater.spark.session import has_java

    return has_java()


def _leave_spark() -> None:
    """Leave alone what was started for Spark: what a promise is kept with starts where its cores are."""
    from headwater.spark.session import cancel

    cancel()


def _history(dataflow: Flow, tables: dict[str, str], show: bool, way: GivingWay, **options: Any) -> Report:
    """Read history to its end, or until it is stopped; return what came of it."""
    from headwater import spark

    with progress("starting Spark"):
        running = spark.start_backfill(dataflow, tables, **options)
    with stop_on_signals() as attach:
        attach(running)
        return live(running, way.look) if show else _wait(running, running.status_line, way.look)


def _refuse_of_promise(has_promise: bool, **options: Any) -> None:
    """Refuse what means nothing without a promise, or with one on Spark."""
    for name in [name for name, value in options.items() if value]:
        option = f"--{name.replace('_', '-')}"
        if not has_promise:
            raise RunError(
                f"{option} is about a promise, and means nothing without --promise RATE or a flow's own contract"
            )
        if name == "realtime":
            raise RunError(f"{option} is the engine's and means nothing with --on spark")


def exit_if_all_are_dead(flow: Flow, report: Report) -> None:
    """End with 1 where no record got anywhere, but for sinks of dead letters: it ran, but the answer is no."""
    for_letters = flow.reached_from(DEAD_LETTERS)
    records_out = sum(count for sink, count in report.last.records_out.items() if sink not in for_letters)
    if 0 < report.last.records_in <= report.dead_letters and not records_out:
        err.print(f"all {report.last.records_in:,} records became dead letters, and nothing was written")
        raise typer.Exit(1)


def _show(report: Report, *, as_json: bool, to: Console) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report, to)
    if report.left:
        err.print(f"stopped with {report.left:,} records left: in queues, in hand or spilled")


def _checkpoint_folder(checkpoint: str | None, on: str) -> Path | None:
    """Return the folder of a checkpoint; None for a URL, which Spark alone can have it at."""
    folder = None if checkpoint is None else path_in(checkpoint)
    if checkpoint is not None and folder is None and on != _SPARK:
        raise RunError(
            f"--checkpoint at a URL is for --on spark; --on {on} needs a folder, and got {without_password(checkpoint)}"
        )
    return folder


def _check_checkpoint(checkpoint: str | None, options: dict[str, Any]) -> None:
    """Refuse what means nothing without a checkpoint, and a folder that nobody means for one."""
    if checkpoint is None:
        names = [name for name, value in options.items() if value]
        if names:
            raise RunError(f"--{names[0]} is about checkpoints, and means nothing without --checkpoint DIR")
    elif path_in(checkpoint) == Path():
        raise RunError("--checkpoint needs a folder of its own, not the current one; is it a variable that is not set?")


def _parse_rate(text: str) -> float:
    """Read `--rate`."""
    with suppress(ValueError, FlowError):
        if 0 < (rate := rate_hz(text) if "/" in text else float(text)) < inf:
            return rate
    raise RunError(f"--rate is records/s, a number above 0, or with a unit such as 90/min; got {text!r}")


def _refuse_others(on: str, engines: dict[str, Any], sparks: dict[str, Any]) -> None:
    """Refuse options that the chosen runner would not heed."""
    usual = Options()
    others = (
        [name for name, value in engines.items() if value is not None and value != getattr(usual, name, None)]
        if on == _SPARK
        else [name for name, value in sparks.items() if value is not None]
    )
    if others:
        name = others[0].replace("queue_bytes", "queue_mb").replace("_", "-")
        whose = "the engine's" if on == _SPARK else "Spark's"
        raise RunError(f"--{name} is {whose} and means nothing with --on {on}")


def parse_take(text: str) -> Take:
    """Read `--take`."""
    if text in ("all", "half"):
        return text  # type: ignore[return-value]
    if not text.isdecimal() or int(text) < 1:
        raise RunError(f"--take is 'all', 'half' or a number of records above 0; got {text!r}")
    return int(text)


def _wait(
    running: Any, status_line: Callable[[], str] | None = None, look: Callable[[], None] = lambda: None
) -> Report:
    report: Report | None = None
    with progress(f"running {running.flow.name}") as say:
        while report is None:
            report = running.wait(0.2)
            if report is not None:
                break
            look()
            if status_line is not None and err.is_terminal:
                say(status_line())
    return report
