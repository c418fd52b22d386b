"""What commands show: JSON on request, tables, a live view, progress on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from headwater.cli.plain import PlainConsole
from headwater.data.timestamps import event_time_reached
from headwater.errors import one_line
from headwater.metrics import Report, Sample, StepMetrics

console = PlainConsole(width=None if sys.stdout.isatty() else 140)
err = PlainConsole(stderr=True, width=None if sys.stderr.isatty() else 140)


_json_wanted = _json_printed = False  #: the document of --json
_document: TextIO | None = None  #: where it goes while standard output is not what programs print to


def want_json(ctx: typer.Context, value: bool) -> bool:
    """Take note of `--json` when a command line is read, so that a command which breaks off can answer, too.

    The document has standard output to itself from here on: what a flow's own code prints goes to standard error.
    """
    global _json_wanted, _json_printed
    _json_wanted, _json_printed = value, False
    if value:
        ctx.with_resource(_aside())
    return value


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    global _document
    _document = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _document = None


def standard_output() -> TextIO:
    """Return the stream for documents, and for the records of sinks that write there."""
    return _document or sys.stdout


def print_error(error: Exception) -> None:
    """Print an error as the one document of `--json`, where that was asked for and there has been none."""
    if _json_wanted and not _json_printed:
        print_json({"error": str(error)})


def print_json(document: Any) -> None:
    """Print one JSON document, and nothing else, on standard output."""
    global _json_printed
    _json_printed = True
    out = standard_output()
    json.dump(document, out, indent=1, default=str)
    out.write("\n")


def print_answer(document: Any, lines: Sequence[str], *, as_json: bool) -> None:
    """Print the answer to a question: as one JSON document, or as the lines that say the same."""
    if as_json:
        print_json(document)
    else:
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something is going on; quiet elsewhere. Yields what says how far it has come."""
    if err.is_terminal:
        with err.status(Text(what)) as status:
            yield lambda text: status.update(Text(text))
    else:
        yield lambda text: None


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what is waited for, by no thread as `progress` does: beside one no lanes could be forked."""
    if not err.is_terminal:
        yield
        return
    err.print(what, end="\r", markup=False, highlight=False)
    try:
        yield
    finally:
        err.control(Control((ControlType.ERASE_IN_LINE, 2), ControlType.CARRIAGE_RETURN))


#: column, how a step fills it (from its counts of the span, its counts of the whole run, and the span), whether a narrow
#: terminal shows it
_COLUMNS: tuple[tuple[str, Callable[[StepMetrics, StepMetrics, float], str], bool], ...] = (
    ("in/s", lambda now, total, span_s: f"{now.records_in / span_s:,.0f}", True),
    ("out/s", lambda now, total, span_s: f"{now.records_out / span_s:,.0f}", True),
    ("queue", lambda now, total, span_s: f"{now.queue:,}", True),
    ("T_Q ms", lambda now, total, span_s: f"{now.t_q_ns / max(1, now.records_in) / 1e6:.3f}", True),
    ("T_S ms", lambda now, total, span_s: f"{now.t_s_ns / max(1, now.records_in) / 1e6:.3f}", False),
    ("T_C ms", lambda now, total, span_s: f"{now.t_c_ns / max(1, now.records_in) / 1e6:.3f}", True),
    ("cost µs", lambda now, total, span_s: f"{now.busy_ns / max(1, now.records_in) / 1e3:.2f}", False),
    ("busy", lambda now, total, span_s: f"{now.utilisation:.0%}", True),
    ("dead", lambda now, total, span_s: f"{total.dead_letters:,}", False),
    ("late", lambda now, total, span_s: f"{total.late:,}", False),
    ("shed", lambda now, total, span_s: f"{total.shed:,}", False),
)
_STATE = ("state kB", lambda now, total, span_s: f"{total.state_bytes / 1000:,.1f}", True)


def steps_table(now: Sample, before: Sample | None, title: str) -> Table:
    """Return a table of what each step did since `before`, or since the start."""
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("step", overflow="fold")
    columns = [column for column in _COLUMNS if column[2] or console.width >= 100]
    if any(step.state_bytes for step in now.steps.values()):
        columns.append(_STATE)
    for name, _, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    span_s = max(now.at_s - (before.at_s if before else 0), 1e-9)
    for name, total in now.steps.items():
        step = total.since(before.steps[name]) if before and name in before.steps else total
        table.add_row(name, *(cell(step, total, span_s) for _, cell, _ in columns))
    return table


def live(run: Any, look: Callable[[], None] = lambda: None, every_s: float = 0.5) -> Report:
    """Show a table that follows a run until it ends, and return its report; `look` is called now and then."""
    from rich.live import Live

    before: Sample | None = None
    with Live(console=err, refresh_per_second=4) as view:
        while (report := run.wait(every_s)) is None:
            look()
            now: Sample = run.sample()
            p = now.latency.minus(before.latency) if before else now.latency
            p50, p99 = p.percentile(50) / 1e6, p.percentile(99) / 1e6
            title = f"{run.flow.name}: {now.at_s:.1f} s, latency p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            view.update(steps_table(now, before, title + event_time_reached(now.watermarks_us) + _promise_text(run)))
            before = now
    result: Report = report
    return result


def _promise_text(run: Any) -> str:
    """Say how a promise fares, of a run that has one."""
    promise = getattr(run, "promise", None)
    if promise is None:
        return ""
    state = promise()
    return f", {state['kept']} of {state['windows']} windows kept{_causes(state)}"


def _causes(promise: dict[str, Any]) -> str:
    """Say what windows broke of, where any did."""
    return "".join(f"; {count} broken: {cause}" for cause, count in promise["causes"].items())


def print_report(report: Report, to: Console = console) -> None:
    """Print what a run did, for people; `to` standard error where records have standard output."""
    document = report.to_json()
    latency = document["latency_ms"]
    to.print(
        Text(report.flow, "bold"),
        f"on {report.runner}: {document['records_in']:,} records in, "
        + ", ".join(f"{n:,} to {sink}" for sink, n in document["records_out"].items())
        + f", in {report.seconds:.2f} s",
    )
    to.print(
        f"latency from creation p50 {latency['p50']:.2f} ms, p95 {latency['p95']:.2f} ms, p99 {latency['p99']:.2f} ms; "
        f"dead letters {report.dead_letters:,}, late {report.late:,}, shed {sum(report.shed.values()):,}, "
        f"left {report.left:,}" + event_time_reached(report.last.watermarks_us)
    )
    if lanes := report.extra.get("lanes_lost"):
        to.print(
            f"of lane {', '.join(map(str, lanes))}, which died, only what it had told by then is counted: what came in, "
            "out, dead, shed and left need not add up"
        )
    for sink, state in report.extra.get("sinks", {}).items():
        if state.get("waiting"):
            to.print(
                f"{state['waiting']:,} records for {sink} wait on disk for the next run: "
                "what is behind it did not take them",
                markup=False,
            )
    if "promise" in report.extra:
        print_promise(report.extra["promise"], to)
    to.print(steps_table(report.last, None, ""))
    for letter in report.examples:
        to.print(one_line(f"dead letter from {letter['step']}: {letter['error']}: {letter['record'][:120]}"))


def print_promise(promise: dict[str, Any], to: Console = console) -> None:
    """Print the windows of a promise, kept and broken, and why those."""
    to.print(
        f"promise: {promise['kept']} of {promise['windows']} windows kept, {promise['used_cores']:.2f} of "
        f"{promise['reserved_cores']:.2f} reserved cores used, {promise['above']:,} records above the rate"
        + _causes(promise),
        markup=False,
    )
