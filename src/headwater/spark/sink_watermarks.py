"""What a sink is told of event time on Spark, where it wants to know: a bridge to another site, above all.

Each stage that sends to it tells how far time has come by itself; the sink hears of the earliest. That is noted for each
micro-batch, beside what the sink has written, since a stage does not say twice what it has said.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from headwater.data.batch import CREATED, EMITTED, NO_WATERMARK, Batch
from headwater.errors import RunError
from headwater.io.files import replace_whole
from headwater.spark.envelope import LAST, Envelope, in_order

Times = Mapping[int, int]  #: how far event time has come behind each stage that sends, by its number


class SinkWatermarks:
    """How far event time has come before one sink; `after` is the last part that the sink has."""

    def __init__(self, path: Path, senders: Iterable[int], after: int, begin: tuple[int, Times] | None = None) -> None:
        """`begin` is what was known behind a part that another runner has left, if one has."""
        self._path = path
        self._by_part = _read(path) | ({} if begin is None else {begin[0]: dict(begin[1])})
        self._by_part = {part: times for part, times in self._by_part.items() if part <= after}
        last = self._by_part[max(self._by_part)] if self._by_part else {}
        self._times = {sender: last.get(sender, NO_WATERMARK) for sender in senders}
        self._last_said = NO_WATERMARK  #: in this run: whoever listens may be another since
        self._safe = dict(self._times), self._last_said

    def in_turn(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope | int]:
        """Return the records of one micro-batch, and how far time has come, as one follows the other."""
        copies = [replace(each) for each in envelopes]
        moves: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in copies:
            for place, watermark in each.watermarks:
                moves[place].append((each.sender, watermark))
        yield from self._news()
        for place in sorted(moves):
            yield from _up_to(place, copies)
            for sender, watermark in moves[place]:
                self._times[sender] = max(watermark, self._times.get(sender, NO_WATERMARK))
            yield from self._news()
        yield from _up_to(LAST, copies)

    def note(self, part: int) -> None:
        """Write down what is known behind a part, before the sink has it."""
        if self._times != self._safe[0]:
            before = max(self._by_part, default=None)
            previous = {} if before is None else {before: self._by_part[before]}
            self._by_part = {**previous, part: dict(self._times)}
            replace_whole(self._path, json.dumps(self._by_part).encode())
        self._safe = dict(self._times), self._last_said

    def rollback(self) -> None:
        """Forget what was heard since the last part: it is said once more."""
        times, self._last_said = self._safe
        self._times = dict(times)

    def _news(self) -> Iterator[int]:
        earliest = min(self._times.values(), default=NO_WATERMARK)
        if earliest > self._last_said:
            self._last_said = earliest
            yield earliest


def _up_to(place: int, envelopes: list[Envelope]) -> Iterator[Envelope]:
    """Take the records up to a place, of all who send, in order."""
    parts = [replace(each, batch=batch, watermarks=[]) for each in envelopes if (batch := each.taken_up_to(place))]
    if parts:
        whole = in_order(parts)
        assert whole.batch is not None
        yield replace(whole, batch=_stamped(whole.batch, whole.emitted_ns))


def _stamped(batch: Batch, emitted_ns: int) -> Batch:
    """Return records with the moment at which they were emitted, where their place in the micro-batch was."""
    stamps = batch.stamps.copy()
    stamps[:, EMITTED] = emitted_ns or stamps[:, CREATED]
    return Batch(batch.columns, batch.length, stamps)


def _read(path: Path) -> dict[int, dict[int, int]]:
    try:
        document = json.loads(path.read_bytes())
        return {int(part): {int(sender): int(at) for sender, at in times.items()} for part, times in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"cannot read {path}, which says how far event time had come: {error}") from None
