"""What Spark says of a query, in our words: how it goes, and what broke it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.data.timestamps import moment_as_text
from headwater.errors import RunError
from headwater.metrics import Sample
from headwater.spark.advice import advice
from headwater.spark.stages import Layout

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def progress(query: StreamingQuery, layout: Layout, last: Sample, batches: int) -> dict[str, Any]:
    """Return micro-batches, `batches` in all, and their duration, the state that is kept, and how far event time has come.

    Spark tells of a micro-batch only after it is over, and a Java that is gone tells nothing: what is not known then is 0.
    """
    reports = [p for p in _reports(query) if p.numInputRows or p.durationMs.get("addBatch")]
    operators = reports[-1].stateOperators if reports else []
    return {
        **batch_figures([p.durationMs["triggerExecution"] for p in reports], layout, last),
        "batches": batches,
        "state_bytes": sum(operator.memoryUsedBytes for operator in operators),
        "state_buckets": sum(operator.numRowsTotal for operator in operators),
    }


def batch_figures(took_ms: Sequence[int], layout: Layout, last: Sample) -> dict[str, Any]:
    """Return how many micro-batches, or jobs, there were and how long they took, and what steps keep."""
    times = sorted(took_ms)
    return {
        "batches": len(times),
        "batch_ms": {"p50": times[len(times) // 2], "max": times[-1]} if times else {"p50": 0, "max": 0},
        "stages": layout.levels + 1,
        "state_of_steps": {name: step.state_bytes for name, step in last.steps.items() if step.state_bytes},
        "watermarks": {name: moment_as_text(at) for name, at in last.watermarks_us.items()},
    }


def _reports(query: StreamingQuery) -> list[Any]:
    from py4j.protocol import Py4JError

    try:
        return list(query.recentProgress)
    except (Py4JError, OSError):
        return []


def cause_in(message: str) -> str:
    """Return what broke, out of the long text in which Spark tells it; for what is not our own, with file and line.

    >>> cause_in("... Traceback ...\\n  File x\\nheadwater.errors.RunError: no such file\\n\\tat org.apache")
    'no such file'
    """
    ours = re.findall(r"headwater\.errors\.\w+: (.*)", message)
    if ours:
        return str(ours[-1]).strip()
    text = advice(message)
    if text is not None:
        return text
    python = list(re.finditer(r"^((?:\w+\.)*\w*(?:Error|Exception): .*)$", message, re.MULTILINE))
    if not python:
        return message.strip().splitlines()[0]
    if python[-1][1].startswith("py4j."):  # it only says who called; the cause is Java's
        java = re.findall(r"^(?:\s*Caused by)?: ((?:\w+\.)+\w*(?:Error|Exception): .*)$", message, re.MULTILINE)
        return str(java[-1]).strip() if java else python[-1][1].strip()
    places = re.findall(r'File "([^"]+)", line (\d+)', message[: python[-1].start()])
    where = f" ({places[-1][0]}:{places[-1][1]})" if places else ""
    return f"{python[-1][1].strip()}{where}"


def stopped(why: str, error: BaseException) -> RunError:
    """Return what is told of a flow that Spark has stopped: a step is to blame, though Spark does not always say which."""
    result = RunError(f"Spark stopped the flow: {why}", step="")
    result.__cause__ = error
    return result
