"""Keyed streams: records of equal keys meet in one place, and the verbs that keep state for each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, listed
from headwater.flow.aggregates import Aggregate
from headwater.flow.duration import Duration, microseconds
from headwater.flow.flow import _users_line
from headwater.flow.state import Scan
from headwater.flow.steps import Apply, Join, KeyedScan, Kind, Process, WindowAggregate
from headwater.flow.stream import Stream, _callable
from headwater.flow.trouble import DEAD_LETTER, OnError
from headwater.flow.windows import Count, Window, by_processing_time


class KeyedStream:
    """A stream grouped by key; its methods keep state for each key."""

    def __init__(self, stream: Stream, keys: tuple[str, ...], of: tuple[str, ...] = ()) -> None:
        self.stream = Stream(stream.flow, stream.step, stream.port, time=stream.time, grouping="key" if keys else "one")
        self.keys, self.of = keys, of

    def process(
        self,
        name: str,
        function: Callable[[Any, dict[str, Any]], Any],
        *,
        out: Fields | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Apply `function(state, record) -> (state, result)` to one record (a dict) after another.

        The state is None for a new key, and of plain values (numbers, text, lists, dicts) so that it can be saved; None
        forgets the key. The result is a record, a list of records, or None for nothing. `out` names its columns; left
        out, they are those of the input.

        >>> from headwater import Flow, engine, io
        >>> flow, seen = Flow("count"), io.Collect()
        >>> calls = flow.read("calls", io.Items([{"of": "a"}, {"of": "a"}]))
        >>> def count(n, record):
        ...     return (n or 0) + 1, {"of": record["of"], "n": (n or 0) + 1}
        >>> calls.key_by("of").process("count", count, out={"of": str, "n": int}).write("seen", seen)
        >>> _ = engine.run(flow)
        >>> seen.records
        [{'of': 'a', 'n': 1}, {'of': 'a', 'n': 2}]
        """
        return self._then(
            name, Process(self.keys, _callable(name, function)), {"out": self.stream._out(out)}, parallel, on_error
        )

    def scan(
        self, name: str, scan: Scan, *, out: Fields | None = None, parallel: int = 1, on_error: OnError = DEAD_LETTER
    ) -> Stream:
        """Run a vectorised keyed step: state arrays with a slot per key, whole batches at a time."""
        return self._then(name, KeyedScan(self.keys, scan), {"out": self.stream._out(out)}, parallel, on_error)

    def apply(
        self,
        name: str,
        make: Callable[[], Any],
        *,
        out: Fields | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Run an operator of your own; records of a key all meet the same instance."""
        return self._then(
            name, Apply(_callable(name, make), self.keys), {"out": self.stream._out(out)}, parallel, on_error
        )

    def window(
        self, name: str, window: Window, *, parallel: int = 1, on_error: OnError = DEAD_LETTER, **aggregates: Aggregate
    ) -> Stream:
        """Aggregate the records of each key and window.

        The result has the keys, `start` and `end` for windows of time, and a column for each aggregate; records that
        come after their window has closed go to the stream's `late`. A window with `time="processing"` holds what comes
        while it is open, and closes by this machine's clock: it needs no event time, and none is ever late.
        """
        schema = self.stream.schema
        timed = not isinstance(window, Count)
        by_event_time = timed and not by_processing_time(window)
        if by_event_time and self.stream.time is None:
            raise FlowError(
                f"{_users_line()}: step {name!r}: a window of time needs event time; "
                'put .event_time(name, column) before key_by, or say time="processing" for the time at which records come'
            )
        if not aggregates:
            raise FlowError(f"{_users_line()}: step {name!r}: a window needs an aggregate, such as n=count()")
        types = self._aggregate_types(name, aggregates)
        fields: dict[str, object] = dict(schema.only(self.keys))
        bounds: dict[str, object] = {"start": "time", "end": "time"} if timed else {}
        twice = set(fields) & set(bounds)
        if twice:
            raise FlowError(
                f"{_users_line()}: step {name!r}: the result has {listed(twice)} twice, as a key and of the window; "
                "give the key another name before key_by, with .with_columns"
            )
        clash = (set(fields) | set(bounds)) & set(types)
        if clash:
            raise FlowError(
                f"{_users_line()}: step {name!r}: the result has {listed(clash)} twice; rename the aggregate"
            )
        outputs = {"out": Schema.of(fields | bounds | types)}
        if by_event_time:
            outputs["late"] = schema
        kind = WindowAggregate(
            self.keys, window, tuple(aggregates.items()), self.stream.time if by_event_time else None
        )
        return self._then(name, kind, outputs, parallel, on_error, time="end" if by_event_time else None)

    def join(
        self, name: str, other: KeyedStream, *, within: Duration, parallel: int = 1, on_error: OnError = DEAD_LETTER
    ) -> Stream:
        """Pair records of two streams that have equal keys and event times at most `within` apart.

        Columns of the other stream whose name is taken get the other step's name in front. Records that lie more
        than `within` behind the watermark of their own stream, when they come, make no pair: they go to `late` (left) and
        `late right`. All others make every pair that their times allow, whichever stream is faster.
        """
        left, right = self.stream, other.stream
        left._check_same_flow(name, right)
        if left.time is None or right.time is None:
            untimed = left.step if left.time is None else right.step
            raise FlowError(
                f"{_users_line()}: step {name!r}: {untimed!r} has no event time; put .event_time before key_by"
            )
        if [left.schema[k] for k in self.keys] != [right.schema[k] for k in other.keys]:
            raise FlowError(
                f"{_users_line()}: step {name!r} joins keys of different types: "
                f"({left.schema.only(self.keys)}) and ({right.schema.only(other.keys)})"
            )
        added = [c for c in right.schema if c not in other.keys]
        renamed = tuple((c, c if c not in left.schema else f"{right.step}_{c}") for c in added)
        result = [*left.schema, *(new for _, new in renamed)]
        twice = {column for column in result if result.count(column) > 1}
        if twice:
            raise FlowError(
                f"{_users_line()}: step {name!r}: the result has {listed(twice)} twice, as columns of {right.step!r} whose "
                f"name is taken get {right.step + '_'!r} in front; drop or rename one before key_by, with .select"
            )
        schema = left.schema.with_fields({new: right.schema[old] for old, new in renamed})
        kind = Join(self.keys, other.keys, left.time, right.time, microseconds(within), renamed)
        inputs = (left._input(self.keys), right._input(other.keys))
        outputs = {"out": schema, "late": left.schema, "late right": right.schema}
        left.flow.add(name, kind, inputs=inputs, outputs=outputs, parallel=parallel, on_error=on_error)
        return Stream(left.flow, name, time=left.time)

    def _aggregate_types(self, name: str, aggregates: dict[str, Aggregate]) -> dict[str, object]:
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise FlowError(
                    f"{_users_line()}: step {name!r}: {column} must be an aggregate such as mean('fare'); got {aggregate!r}"
                )
        try:
            return {n: a.type_in(self.stream.schema) for n, a in aggregates.items()}
        except FlowError as error:
            raise FlowError(f"{_users_line()}: step {name!r}: {error}") from None

    def _then(
        self,
        name: str,
        kind: Kind,
        outputs: dict[str, Schema],
        parallel: int,
        on_error: OnError,
        *,
        time: str | None = None,
    ) -> Stream:
        return self.stream._add(name, kind, outputs, parallel, on_error, time=time, keys=self.keys, of=self.of)
