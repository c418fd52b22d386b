"""Sinks written in numbered parts: each part is there once, however often a run is cut off and taken up again.

`journal` is what a sink has written, as a small file. `line_file` cuts a text file back to where its last part ended,
`table` lets the Parquet files of a part appear together, `sqlite` writes a part and its number in one transaction, `spool`
keeps records for a sink that writes all of them at the end, `outbox` for one behind a network that may be cut (`uplink`),
with `open_files` that nobody can delete; `delivery_order` tells which writer's turn it is.
`direct` serves every other sink: a part that was cut short is written once more. Spark's micro-batches and
checkpoints are parts alike.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import Ledger, Transaction, delivery_of, is_remote, label_of


def transaction_of(sink: Any, schema: Schema, ledger: Ledger) -> Transaction:
    """Open a sink to be written in parts: by its own transactions, or as well as it can be without any."""
    begin = getattr(sink, "transaction", None)
    if begin is None and delivery_of(sink) != "transactional":
        from headwater.io.transactions.direct import Direct

        if is_remote(sink):  # a cut uplink must not make dead letters: what is safe in the log is written
            from headwater.io.forwarding import forward
            from headwater.io.transactions.delivery_order import FORWARD

            sink = forward(sink, ledger.folder / FORWARD).when(ledger.is_turn_of_entry)
        return Direct(sink, schema, ledger)
    if begin is None:
        raise FlowError(
            f"{label_of(sink)} says that it is transactional, and has no method transaction(schema, ledger)"
        )
    transaction: Transaction = begin(schema, ledger)
    return transaction


def ledger_of(checkpoint: Path, step: str, after: int | None = None) -> Ledger:
    """Return where the sink of a step makes its notes in a checkpoint's folder."""
    name = f"{run_name(checkpoint)}-{sha256(step.encode()).hexdigest()[:4]}"
    return Ledger(notes_of(checkpoint, step), name, after)


def notes_of(checkpoint: Path, writer: str) -> Path:
    """Return the folder in which a writer of a sink makes its notes."""
    return checkpoint / "sinks" / quote(writer, safe=" ")


def run_name(checkpoint: Path, name: str | None = None) -> str:
    """Return a name for all runs that share a checkpoint, by which they know their own in a table of others.

    A run that knows it says so: should somebody have cleaned up, the next run has to find the same.
    """
    path = checkpoint / "sinks" / "run"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name("run.new")
        fresh.write_text(name or uuid4().hex[:8])
        fresh.replace(path)
    return path.read_text()
