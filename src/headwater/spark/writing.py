"""Sinks that the driver writes: the records of one micro-batch after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np

from headwater.errors import listed
from headwater.flow.endpoints import NumberedWriter, Refused, StagedWriter, Staging, Transaction, throttle_by
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.io.sifting import without
from headwater.operators.operator import dead_letters
from headwater.spark.envelope import Envelope
from headwater.spark.sink_watermarks import SinkWatermarks
from headwater.spark.sinks import key_before, open_sink
from headwater.spark.tally import Tally

log = logging.getLogger(__name__)

_AGAIN_S = 0.1  #: between two looks whether there is room


class Sinks:
    """All sinks of a flow, open."""

    def __init__(
        self,
        flow: Flow,
        checkpoint: Path,
        after: int | None = None,
        new: Collection[str] = (),
        hearing: Callable[[str, int], SinkWatermarks] | None = None,
    ) -> None:
        """Open them, to go on behind part `after` if that is said, but for those that are `new`.

        `hearing` makes what a sink is told of event time, for those that want to know, given the last part that they have.
        """
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
        names = [name for name, sink in self._open.items() if hearing is not None and hasattr(sink, "advance")]
        self._hearing = {} if hearing is None else {name: hearing(name, self._open[name].committed) for name in names}
        self._room_taken = dict.fromkeys(self._hearing, 0.0)  #: how much of the room of a bridge is
        for name in self._hearing:
            throttle_by(self._open[name], partial(self._room_taken.__setitem__, name))
        self._staged = {name: sink for name, sink in self._open.items() if isinstance(sink, StagedWriter)}

    def stagings(self) -> Mapping[str, Staging]:
        """Return what tasks need to write records themselves, for the sinks that let them."""
        return {name: sink.staging for name, sink in self._staged.items()}

    def wait_for_room(self, leaving: Event) -> None:
        """Wait while a bridge keeps all that it may for a site that does not take it, unless the run is to stop."""
        while any(share >= 1 for share in self._room_taken.values()) and not leaving.wait(_AGAIN_S):
            pass

    def write(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> None:
        """Write the records of one micro-batch, under its number as a part of what sinks have."""
        due = self._filled(part, envelopes, tally)
        # dead letters first: after a kill, a sink that broke breaks again, but letters come of it only if it is asked
        for name in sorted(due, key=lambda name: name not in self._for_letters):
            self._note_time(name, part)
            due[name].commit(part)

    def prepare(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> None:
        """Write records that are to be there in all sinks or in none: they are, once sinks are opened behind their part."""
        for name, sink in self._filled(part, envelopes, tally).items():
            self._note_time(name, part)
            if isinstance(sink, Transaction):
                sink.prepare(part)
            else:
                sink.commit(part)  # which may have to be done again, as with every part that Spark writes itself

    def _note_time(self, name: str, part: int) -> None:
        if name in self._hearing:
            self._hearing[name].note(part)

    def _filled(self, part: int, envelopes: dict[str, list[Envelope]], tally: Tally) -> dict[str, NumberedWriter]:
        """Write to the sinks that do not have a part yet, and return those; what one cannot take is a dead letter."""
        due = {name: sink for name, sink in self._open.items() if part > sink.committed}
        for name, sink in due.items():
            sink.rollback()  # an attempt may have failed half-way
            if name in self._hearing:
                self._hearing[name].rollback()
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
        """Write to one sink, and tell it of event time where it wants to know; return dead letters."""
        letters = []
        records: Iterable[Envelope | int] = envelopes
        if name in self._hearing:
            records = self._hearing[name].in_turn(envelopes)
        for envelope in records:
            if isinstance(envelope, int):
                self._open[name].advance(envelope)  # type: ignore[attr-defined]  # who hears has one
                continue
            batch = envelope.batch
            if batch is None:
                continue  # a word about event time, for a sink that cannot hear it in parts
            start = time.perf_counter_ns()
            try:
                refusals: Refused = {}
                if envelope.words:
                    self._staged[name].stage(envelope.words)
                else:
                    refusals = self._open[name].write(batch) or {}
            except Exception as error:
                refusals = dict.fromkeys(range(batch.length), f"{type(error).__name__}: {error}")
            if refusals:
                rows = np.array(sorted(refusals))
                letter = dead_letters(name, [refusals[row] for row in rows.tolist()], batch.take(rows))
                letters.append(Envelope(envelope.sender, envelope.emitted_ns, letter))
                handed_on = name not in self._for_letters and bool(self._for_letters)
                tally.broke(name, letter, handed_on=handed_on)
                envelope = replace(envelope, batch=without(batch, refusals))
            if envelope.batch:
                tally.wrote(name, envelope, time.perf_counter_ns() - start)
        return letters

    def close(self) -> None:
        """Finish what is written; one that cannot does not keep the others from it."""
        with ExitStack() as stack:
            for sink in self._open.values():
                stack.callback(sink.close)
