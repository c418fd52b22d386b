"""Sinks that the driver writes: the records of one micro-batch after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from headwater.errors import listed
from headwater.flow.endpoints import NumberedWriter, Refused, StagedWriter, Staging, Transaction
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.io.sifting import without
from headwater.operators.operator import dead_letters
from headwater.spark.envelope import Envelope
from headwater.spark.sinks import key_before, open_sink
from headwater.spark.tally import Tally

log = logging.getLogger(__name__)


class Sinks:
    """All sinks of a flow, open."""

    def __init__(self, flow: Flow, checkpoint: Path, after: int | None = None, new: Collection[str] = ()) -> None:
        """Open them, to go on behind part `after` if that is said, but for those that are `new`."""
        self._open: dict[str, NumberedWriter] = {}
        readers = flow.readers_of(DEAD_LETTERS)
        self._for_letters = [step.name for step in readers if step.is_sink]
        self._passed_by = [step.name for step in readers if not step.is_sink]
        try:
            for name, step in flow.steps.items():
                if step.is_sink:
                    self._open[name] = open_sink(
                        step, checkpoint, key_before(flow, step), None if name in new else after
                    )
        except BaseException:
            self.close()
            raise
        self._staged = {name: sink for name, sink in self._open.items() if isinstance(sink, StagedWriter)}

    def stagings(self) -> Mapping[str, Staging]:
        """Return what tasks need to write records themselves, for the sinks that let them."""
        return {name: sink.staging for name, sink in self._staged.items()}

    def write(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> None:
        """Write the records of one micro-batch, under its number as a part of what sinks have."""
        due = self._filled(part, envelopes, tally)
        # dead letters first: after a kill, a sink that broke breaks again, but letters come of it only if it is asked
        for name in sorted(due, key=lambda name: name not in self._for_letters):
            due[name].commit(part)

    def prepare(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> None:
        """Write records that are to be there in all sinks or in none: they are, once sinks are opened behind their part."""
        for sink in self._filled(part, envelopes, tally).values():
            if isinstance(sink, Transaction):
                sink.prepare(part)
            else:
                sink.commit(part)  # which may have to be done again, as with every part that Spark writes itself

    def _filled(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> dict[str, NumberedWriter]:
        """Write to the sinks that do not have a part yet, and return those; what one cannot take is a dead letter."""
        due = {name: sink for name, sink in self._open.items() if part > sink.committed}
        for sink in due.values():
            sink.rollback()  # an attempt may have failed half-way
        letters: list[Envelope] = []
        for name in due:
            if name not in self._for_letters:
                letters += self._write(name, envelopes.get(name, []), tally)
        if letters and self._passed_by:  # it has run: what the driver finds out comes after all steps
            log.warning("dead letters of sinks do not come to step %s on Spark", listed(self._passed_by))
        for name in self._for_letters:
            if name in due:
                self._write(name, [*envelopes.get(name, []), *letters], tally)
        return due

    def _write(self, name: str, envelopes: list[Envelope], tally: Tally) -> list[Envelope]:
        """Write to one sink; return dead letters."""
        letters = []
        for envelope in envelopes:
            batch = envelope.batch
            assert batch is not None
            start = time.perf_counter_ns()
            try:
                refused: Refused = {}
                if envelope.said:
                    self._staged[name].stage(envelope.said)
                else:
                    refused = self._open[name].write(batch) or {}
            except Exception as error:
                refused = dict.fromkeys(range(batch.length), f"{type(error).__name__}: {error}")
            if refused:
                rows = np.array(sorted(refused))
                told = dead_letters(name, [refused[row] for row in rows.tolist()], batch.take(rows))
                letters.append(Envelope(envelope.sender, envelope.emitted_ns, told))
                handed_on = name not in self._for_letters and bool(self._for_letters)
                tally.broke(name, told, handed_on=handed_on)
                envelope = replace(envelope, batch=without(batch, refused))
            if envelope.batch:
                tally.wrote(name, envelope, time.perf_counter_ns() - start)
        return letters

    def close(self) -> None:
        """Finish what is written; one that cannot does not keep the others from it."""
        with ExitStack() as stack:
            for sink in self._open.values():
                stack.callback(sink.close)
