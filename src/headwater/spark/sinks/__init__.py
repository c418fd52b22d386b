"""Where records go on Spark: each micro-batch once, by its number, in every sink that can take it back.

What a sink can do it declares; `kafka`, `jdbc` and `discard` are those that Spark writes itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import RunError
from headwater.flow.endpoints import NumberedWriter, Sink, check_sink, delivery_of, is_remote, label_of
from headwater.flow.flow import Flow
from headwater.flow.steps import Input, Step, Write
from headwater.io.transactions import ledger_of, transaction_of
from headwater.spark.native import writes

if TYPE_CHECKING:
    from headwater.spark.checkpoint import Checkpoint


def check(flow: Flow, checkpoint: Checkpoint | None = None) -> None:
    """Raise what sinks have to say of the columns that they are given, before Java has to be started.

    Beside a checkpoint at a URL no records can wait, for which a sink behind a network needs a folder.
    """
    for step in flow.steps.values():
        if isinstance(step.kind, Write):
            sink, schema = step.kind.sink, step.inputs[0].schema
            native = writes(sink)
            if native is None:
                check_sink(sink, schema)
                if checkpoint is not None and checkpoint.is_far and is_remote(sink):
                    raise RunError(
                        f"sink {step.name!r} keeps records on disk until {label_of(sink)} has them, and checkpoint "
                        f"{checkpoint} is no folder of this machine; give one, or write what Spark writes itself"
                    )
            else:
                native.check(schema, key_before(flow, step))


def open_sink(step: Step, checkpoint: Path, key: tuple[str, ...] = (), after: int | None = None) -> NumberedWriter:
    """Open a step's sink, for records of a key; what it has written is kept in the checkpoint, or in the sink itself.

    `after` is the last part that counts, where another runner has written it; what Spark writes itself knows none of those.
    """
    assert isinstance(step.kind, Write)
    sink, schema = step.kind.sink, step.inputs[0].schema
    native = writes(sink)
    if native is not None:
        return native.open(schema, ledger_of(checkpoint, step.name), key)
    return transaction_of(sink, schema, ledger_of(checkpoint, step.name, after))


def guarantee(step: Step) -> str:
    """Return what holds for a step's sink after a kill, in words."""
    assert isinstance(step.kind, Write)
    native = writes(step.kind.sink)
    if native is not None:
        return native.guarantee
    return "exactly once" if delivery_of(step.kind.sink) == "transactional" else "at least once"


def delivery_text(step: Step) -> str:
    """Return who writes a step's sink, and what holds for it, in words."""
    assert isinstance(step.kind, Write)
    native = writes(step.kind.sink)
    way = native.way if native is not None else f"written by {'tasks' if _is_staged(step.kind.sink) else 'the driver'}"
    return f"{way}, {guarantee(step)}".removeprefix(", ")


def _is_staged(sink: Sink) -> bool:
    """Say whether tasks write its records, each its own, and the driver has them appear."""
    return getattr(sink, "staged", False) is True


def key_before(flow: Flow, step: Step) -> tuple[str, ...]:
    """Return the columns of the last `key_by` before a sink, if its records still have all of them."""
    edge = step.inputs[0]
    keys = _keys_of(flow, edge)
    return keys if all(name in edge.schema for name in keys) else ()


def _keys_of(flow: Flow, stream: Input) -> tuple[str, ...]:
    maker = flow.steps[stream.step]
    keys = {edge.keys or _keys_of(flow, edge) for edge in maker.inputs}
    return keys.pop() if len(keys) == 1 else ()
