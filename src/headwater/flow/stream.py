"""Streams: the edges of a flow, and the verbs that add steps to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch
from headwater.data.schema import Fields, Schema, Type
from headwater.errors import FlowError, listed
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import Sink
from headwater.flow.expr import Column, Expr, expr
from headwater.flow.flow import Flow, _users_line, refuse_others
from headwater.flow.steps import (
    Apply,
    EventTime,
    Filter,
    Grouping,
    Input,
    Kind,
    Map,
    Select,
    Split,
    Union,
    Write,
)
from headwater.flow.trouble import DEAD_LETTER, OnError

if TYPE_CHECKING:
    from headwater.flow.keyed_stream import KeyedStream


class Stream:
    """What flows out of a step; each method adds a step that reads it.

    `on_error` of a step says what becomes of records that break it: "dead letter", "stop" the run, or `retry(...)`.
    """

    def __init__(
        self,
        flow: Flow,
        step: str,
        port: str = "out",
        *,
        time: str | None = None,
        grouping: Grouping = "shuffle",
    ) -> None:
        self.flow = flow
        self.step = step
        self.port = port
        self.time = time  #: the column that holds event time, once `event_time` has said so
        self.grouping = grouping

    @property
    def schema(self) -> Schema:
        """The columns of the stream."""
        return self.flow.steps[self.step].outputs[self.port]

    def filter(self, name: str, condition: Expr, *, parallel: int = 1, on_error: OnError = DEAD_LETTER) -> Stream:
        """Keep the records for which the condition holds; where it is missing, the record goes."""
        self._check_condition(name, condition)
        return self._then(name, Filter(condition), self.schema, parallel, on_error)

    def select(
        self, name: str, *names: str, parallel: int = 1, on_error: OnError = DEAD_LETTER, **columns: Any
    ) -> Stream:
        """Keep the named columns and compute the others; nothing else stays."""
        exprs = {n: _column(n) for n in names} | {n: expr(e) for n, e in columns.items()}
        types = self._types(name, exprs)
        return self._then(name, Select(tuple(exprs.items()), keep=False), Schema.of(types), parallel, on_error)

    def with_columns(self, name: str, *, parallel: int = 1, on_error: OnError = DEAD_LETTER, **columns: Any) -> Stream:
        """Compute columns and keep the others."""
        exprs = {n: expr(e) for n, e in columns.items()}
        schema = self.schema.with_fields(self._types(name, exprs))
        return self._then(name, Select(tuple(exprs.items()), keep=True), schema, parallel, on_error)

    def map_batches(
        self,
        name: str,
        function: Callable[[Batch], Any],
        *,
        out: Fields | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Apply a function to whole batches; it returns columns (a dict of arrays) or a Batch.

        Columns that it leaves out are those it was given; arrays of another type than `out` says are dead letters.
        """
        return self._then(name, Map(_callable(name, function), "batch"), self._out(out), parallel, on_error)

    def map(
        self,
        name: str,
        function: Callable[[dict[str, Any]], Any],
        *,
        out: Fields | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Apply a function to one record (a dict) after another; convenient, and slower than expressions.

        A function that returns None leaves its record out, as `filter` does: what a step took and made is in every report.
        """
        return self._then(name, Map(_callable(name, function), "record"), self._out(out), parallel, on_error)

    def flat_map(
        self,
        name: str,
        function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
        *,
        out: Fields | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Apply a function that makes any number of records of one."""
        return self._then(name, Map(_callable(name, function), "record", many=True), self._out(out), parallel, on_error)

    def apply(
        self,
        name: str,
        make: Callable[[], Any],
        *,
        out: Fields | None = None,
        sides: dict[str, Fields] | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Run an operator of your own; `make` returns a new one for each instance."""
        outputs = {
            "out": self._out(out),
            **{port: Schema.of(fields) for port, fields in (sides or {}).items()},
        }
        return self._add(name, Apply(_callable(name, make)), outputs, parallel, on_error)

    def event_time(
        self,
        name: str,
        column: str,
        *,
        lateness: Duration = "0 s",
        ahead: Duration = "1 min",
        idle: Duration | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Stream:
        """Say which column holds event time; records may come `lateness` out of order.

        A record whose clock runs more than `ahead` before ours is a dead letter: one bad clock must not close the
        windows of all other devices. A stream that is silent for longer than `idle` no longer holds back the time of those
        that it meets in a union or a join, until its next record, which may be late by then; without `idle`, all wait.
        """
        kind = self.schema.type_of(column, what=f"step {name!r}")
        if kind != "time":
            raise FlowError(
                f"{_users_line()}: step {name!r}: event time must be a column of type time; {column!r} is {kind}"
                f"{_time_hint(column, kind)}"
            )
        idle_us = None if idle is None else microseconds(idle)
        if idle_us == 0:
            raise FlowError(
                f"{_users_line()}: step {name!r}: idle is how long a stream may be silent, above 0; got {idle!r}"
            )
        step = EventTime(column, microseconds(lateness), microseconds(ahead), idle_us)
        return self._then(name, step, self.schema, parallel, on_error, time=column)

    def key_by(self, *keys: str, of: str | Sequence[str] = ()) -> KeyedStream:
        """Group the stream: records of equal keys meet in one place; no keys means all records together.

        `of` promises that all records of a key have the same value in these columns too, as all lines of an order are of
        one customer: `key_by("order", of="customer")`. Records that are grouped by customer already then need not move
        again between lanes. Nobody checks it: where it does not hold, a key's records are not together.
        """
        columns = (of,) if isinstance(of, str) else tuple(of)
        for key in (*keys, *columns):
            kind = self.schema.type_of(key, what=f"key_by after step {self.step!r}")
            if kind == "any":
                raise FlowError(f"{_users_line()}: column {key!r} of type any cannot be a key")
        from headwater.flow.keyed_stream import KeyedStream

        return KeyedStream(self, keys, columns)

    def split(
        self, name: str, condition: Expr, *, parallel: int = 1, on_error: OnError = DEAD_LETTER
    ) -> tuple[Stream, Stream]:
        """Return two streams: records for which the condition holds, and the rest."""
        self._check_condition(name, condition)
        matching = self._add(name, Split(condition), {"out": self.schema, "rest": self.schema}, parallel, on_error)
        return matching, matching.side("rest")

    def union(self, name: str, *others: Stream, parallel: int = 1) -> Stream:
        """Put streams of one schema together; order is kept within each."""
        for other in others:
            self._check_same_flow(name, other)
            if other.schema != self.schema:
                raise FlowError(
                    f"{_users_line()}: step {name!r} joins streams of different columns: "
                    f"{self.step!r} has ({self.schema}), {other.step!r} has ({other.schema})"
                )
        time = self.time if all(other.time == self.time for other in others) else None
        inputs = tuple(stream._input() for stream in (self, *others))
        self.flow.add(name, Union(), inputs=inputs, outputs={"out": self.schema}, parallel=parallel)
        return Stream(self.flow, name, time=time)

    def write(self, name: str, sink: Sink, *, parallel: int = 1, on_error: OnError = DEAD_LETTER) -> None:
        """Take the records out to a sink."""
        refuse_others(name, sink, "sink")
        self.flow.add(name, Write(sink), inputs=(self._input(),), parallel=parallel, on_error=on_error)

    def side(self, port: str) -> Stream:
        """Return another output of the same step, such as 'late'."""
        outputs = self.flow.steps[self.step].outputs
        if port not in outputs:
            raise FlowError(
                f"{_users_line()}: step {self.step!r} has no output {port!r}; outputs are {listed(outputs)}"
            )
        return Stream(self.flow, self.step, port, time=self.time if self.time in outputs[port] else None)

    @property
    def late(self) -> Stream:
        """The records that came after their window had closed."""
        return self.side("late")

    def shuffle(self) -> Stream:
        """Spread records evenly over the instances of the next step (the default)."""
        return self._with_grouping("shuffle")

    def to_all(self) -> Stream:
        """Send every record to every instance of the next step."""
        return self._with_grouping("all")

    def to_one(self) -> Stream:
        """Send every record to the first instance of the next step."""
        return self._with_grouping("one")

    def _with_grouping(self, grouping: Grouping) -> Stream:
        return Stream(self.flow, self.step, self.port, time=self.time, grouping=grouping)

    def _input(self, keys: tuple[str, ...] = (), of: tuple[str, ...] = ()) -> Input:
        return Input(self.step, self.port, self.schema, self.grouping, keys, of)

    def _then(
        self,
        name: str,
        kind: Kind,
        schema: Schema,
        parallel: int,
        on_error: OnError,
        *,
        time: str | None = None,
    ) -> Stream:
        return self._add(name, kind, {"out": schema}, parallel, on_error, time=time)

    def _add(
        self,
        name: str,
        kind: Kind,
        outputs: dict[str, Schema],
        parallel: int,
        on_error: OnError,
        *,
        time: str | None = None,
        keys: tuple[str, ...] = (),
        of: tuple[str, ...] = (),
    ) -> Stream:
        inputs = (self._input(keys, of),)
        self.flow.add(name, kind, inputs=inputs, outputs=outputs, parallel=parallel, on_error=on_error)
        return Stream(self.flow, name, time=time or self._time_behind(kind, outputs["out"]))

    def _time_behind(self, kind: Kind, schema: Schema) -> str | None:
        """Return the column of event time behind a step; watermarks know nothing of one that is computed anew."""
        if self.time is None or self.time not in schema or schema[self.time] != "time":
            return None
        computed = dict(kind.columns).get(self.time) if isinstance(kind, Select) else None
        return self.time if computed is None or str(computed) == str(Column(self.time)) else None

    def _types(self, name: str, columns: dict[str, Expr]) -> Fields:
        try:
            return {n: e.type_in(self.schema) for n, e in columns.items()}
        except FlowError as error:
            raise FlowError(f"{_users_line()}: step {name!r}: {error}") from None

    def _check_condition(self, name: str, condition: Expr) -> None:
        if not isinstance(condition, Expr):
            raise FlowError(
                f"{_users_line()}: step {name!r} takes an expression such as col.height < 150; "
                f"got {type(condition).__name__}; for a Python function use map or map_batches"
            )
        kind = self._types(name, {"condition": condition})["condition"]
        if kind != "bool":
            raise FlowError(f"{_users_line()}: step {name!r}: a condition is true or false; {condition} is {kind}")

    def _out(self, out: Fields | None) -> Schema:
        return self.schema if out is None else Schema.of(out)

    def _check_same_flow(self, name: str, other: Stream) -> None:
        if other.flow is not self.flow:
            raise FlowError(
                f"{_users_line()}: step {name!r} joins a stream of flow {self.flow.name!r} with one of flow "
                f"{other.flow.name!r}; all streams of a step belong to one flow"
            )

    def __repr__(self) -> str:
        return f"Stream({self.step!r}, {self.schema})"


def _column(name: str) -> Expr:
    if not isinstance(name, str):
        raise FlowError(f"{_users_line()}: select takes names of columns, and name=expression; got {name!r}")
    return Column(name)


def _time_hint(column: str, kind: Type) -> str:
    ways = {
        "text": (f"{Column(column)}.cast('time')", "reads ISO 8601"),
        "int": (f"{Column(column)}.cast('time')", "takes microseconds since 1970"),
        "float": (f"({Column(column)} * 1_000_000).cast('time')", "takes seconds since 1970"),
    }
    if kind not in ways:
        return ""
    way, means = ways[kind]
    fields = f"{column}={way}" if column.isidentifier() else f"**{{{column!r}: {way}}}"
    return f"; did you mean .with_columns('time', {fields}) before it, which {means}?"


def _callable(name: str, function: Any) -> Any:
    if not callable(function):
        raise FlowError(f"{_users_line()}: step {name!r} takes a function; got {type(function).__name__}")
    return function
