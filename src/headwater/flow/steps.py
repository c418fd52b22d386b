"""Steps as plain data: what each kind of step does and keeps, and how steps are joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple

from headwater.data.batch import END, NO_WATERMARK
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow.aggregates import Aggregate
from headwater.flow.endpoints import Sink, Source, hears_time, label_of, writers_of
from headwater.flow.expr import Expr
from headwater.flow.names import name_of
from headwater.flow.state import Scan
from headwater.flow.trouble import DEAD_LETTER, OnError
from headwater.flow.windows import Window

#: How records of a stream are spread over the instances of the step that reads it.
Grouping = Literal["shuffle", "key", "all", "one"]
Columns = tuple[tuple[str, Expr], ...]
#: What a step keeps from one record to the next: nothing; how far event time has come in its own stream; something by key;
#: something of all records; or what inputs that go to all instances have told it, the same in every copy.
State = Literal["none", "stream", "key", "all", "copied"]


class Stateless:
    """A kind of step that looks at each record alone, and does nothing when event time moves on."""

    state: ClassVar[State] = "none"
    timed: ClassVar[bool] = False


class Keyed:
    """A kind of step that keeps something by key."""

    state: ClassVar[State] = "key"
    timed: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class Read(Stateless):
    """Brings records in."""

    source: Source
    #: from a source of splits to the step that reads event time, see `headwater.flow.splits`; empty where nobody has looked
    way: tuple[OnTheWay, ...] = ()

    def __str__(self) -> str:
        return f"read {label_of(self.source)}"


@dataclass(frozen=True, eq=False)
class Filter(Stateless):
    """Keeps the records for which a condition holds."""

    condition: Expr

    def __str__(self) -> str:
        return f"filter {self.condition}"


@dataclass(frozen=True, eq=False)
class Select(Stateless):
    """Computes columns; `keep` says whether the others stay."""

    columns: Columns
    keep: bool

    def __str__(self) -> str:
        columns = ", ".join(name if str(e) == f"col.{name}" else f"{name} = {e}" for name, e in self.columns)
        return f"{'with' if self.keep else 'select'} {columns}"


@dataclass(frozen=True, eq=False)
class Map(Stateless):
    """Applies a Python function to batches, or to one record after another; `many` if it gives any number back."""

    function: Callable[[Any], Any]
    over: Literal["batch", "record"]
    many: bool = False

    def __str__(self) -> str:
        verb = "flat map" if self.many else "map"
        return f"{verb} {name_of(self.function)} over each {self.over}"


@dataclass(frozen=True, eq=False)
class EventTime:
    """Reads event time from a column and says how far it has come (the watermark)."""

    column: str
    lateness_us: int
    ahead_us: int
    idle_us: int | None = None  #: how long it may be silent before nobody waits for it; None for ever

    state: ClassVar[State] = "stream"
    timed: ClassVar[bool] = False  # it makes time, and does nothing by it

    def __str__(self) -> str:
        return f"event time {self.column}"


@dataclass(frozen=True, eq=False)
class Process(Keyed):
    """Applies a function to a key's state and a record: `function(state, record) -> (state, result)`."""

    keys: tuple[str, ...]
    function: Callable[[Any, dict[str, Any]], Any]

    def __str__(self) -> str:
        return f"process {name_of(self.function)} by {', '.join(self.keys)}"


@dataclass(frozen=True, eq=False)
class KeyedScan(Keyed):
    """Runs a scan: state arrays with a slot per key, whole batches at a time."""

    keys: tuple[str, ...]
    scan: Scan

    def __str__(self) -> str:
        return f"{type(self.scan).__name__} by {', '.join(self.keys)}"


@dataclass(frozen=True, eq=False)
class WindowAggregate(Keyed):
    """Aggregates the records of each key and window."""

    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    time: str | None

    @property
    def timed(self) -> bool:  # type: ignore[override]  # said by the window
        """Whether windows close by event time: those that count records do not."""
        return self.time is not None

    def __str__(self) -> str:
        columns = ", ".join(f"{name} = {aggregate}" for name, aggregate in self.aggregates)
        return f"{self.window} by {', '.join(self.keys)}: {columns}"


@dataclass(frozen=True, eq=False)
class Join(Keyed):
    """Pairs records of two streams that have equal keys and event times at most `within_us` apart."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_time: str
    right_time: str
    within_us: int
    #: columns of the right stream and the names they get in the result
    renamed: tuple[tuple[str, str], ...]

    timed: ClassVar[bool] = True

    @property
    def lag_us(self) -> int:
        """How far behind the watermark a pair may lie: it is as old as its left record, up to `within` older than the right.

        The right one may itself come `within` behind the watermark without being late.
        """
        return 2 * self.within_us

    def __str__(self) -> str:
        return f"join on {', '.join(self.left_keys)}"


@dataclass(frozen=True, eq=False)
class Union(Stateless):
    """Puts several streams of one schema together."""

    def __str__(self) -> str:
        return "union"


@dataclass(frozen=True, eq=False)
class Split(Stateless):
    """Sends each record one of two ways."""

    condition: Expr

    def __str__(self) -> str:
        return f"split {self.condition}"


@dataclass(frozen=True, eq=False)
class Apply:
    """Runs an operator of the user's own; `make` returns a new one for each instance."""

    make: Callable[[], Any]
    keys: tuple[str, ...] = ()

    @cached_property
    def operator(self) -> Any:
        """The class of what `make` returns, which says what it keeps; only where `make` is a function one has to be made."""
        make: Any = self.make.func if isinstance(self.make, partial) else self.make
        if not isinstance(make, type):
            instance = self.make()
            make = type(instance)
            if hasattr(instance, "close"):
                instance.close()
        if not hasattr(make, "stateless"):
            raise FlowError(f"{name_of(self.make)} must return an Operator; got {make.__name__}")
        return make

    @property
    def lag_us(self) -> int:
        """How far behind the watermark its results may lie: those of a query's batch are as old as its last record."""
        lag: int = getattr(self.make, "delay_us", 0)
        return lag

    @property
    def state(self) -> State:
        """What its class says: `stateless`, `replicable`; what does something by event time has to remember it."""
        if self.operator.stateless and not self.timed:
            return "none"
        return "copied" if self.operator.replicable else "all"

    @property
    def timed(self) -> bool:
        """Whether its class does something when event time moves on."""
        return bool(self.operator.timed)

    def __str__(self) -> str:
        return name_of(self.make)


@dataclass(frozen=True, eq=False)
class DeadLetters(Stateless):
    """Brings in what broke other steps."""

    def __str__(self) -> str:
        return "dead letters"


@dataclass(frozen=True, eq=False)
class Write(Stateless):
    """Takes records out."""

    sink: Sink

    @property
    def timed(self) -> bool:  # type: ignore[override]  # said by the sink
        """Whether the sink wants to know how far event time has come."""
        return hears_time(self.sink)

    def __str__(self) -> str:
        return f"write {label_of(self.sink)}"


OutputName = tuple[str, str]  #: a step and one of its outputs: what names a stream

Kind = (
    Read
    | Filter
    | Select
    | Map
    | EventTime
    | Process
    | KeyedScan
    | WindowAggregate
    | Join
    | Union
    | Split
    | Apply
    | DeadLetters
    | Write
)


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that a step reads: which step's which output, and how it is spread over instances."""

    step: str
    port: str
    schema: Schema
    grouping: Grouping = "shuffle"
    keys: tuple[str, ...] = ()
    #: columns that have one value for each key: records that are together by these are together by the key
    of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a flow."""

    name: str
    kind: Kind
    inputs: tuple[Input, ...] = ()
    #: output name → schema; the first is the main one. A sink has none.
    outputs: dict[str, Schema] = field(default_factory=dict)
    parallel: int = 1  #: instances that were asked for; `instances` are those that run
    #: file:line of the user's call, for messages
    where: str = ""
    on_error: OnError = DEAD_LETTER  #: what becomes of records that break it

    @property
    def keeps(self) -> str | None:
        """What its state is about: where that is another, saved state means something else. None where nobody can say."""
        if isinstance(self.kind, WindowAggregate | Join):
            return str(self.kind)
        keeps: str | None = getattr(self.kind.make, "keeps", None) if isinstance(self.kind, Apply) else None
        return keeps

    def time_behind(self, watermark: int) -> int:
        """Return how far event time has come behind the step, given how far it has come at it."""
        if not isinstance(self.kind, Join | Apply) or watermark in (NO_WATERMARK, END):
            return watermark
        return max(NO_WATERMARK, watermark - self.kind.lag_us)

    @property
    def is_source(self) -> bool:
        """Whether the step brings records in."""
        return isinstance(self.kind, Read)

    @property
    def is_sink(self) -> bool:
        """Whether the step takes records out."""
        return isinstance(self.kind, Write)

    @property
    def state(self) -> State:
        """What it keeps: what a kind keeps by key, or of all records, is by key where all its inputs are."""
        if self.kind.state in ("none", "stream"):
            return self.kind.state
        keyed = any(edge.keys for edge in self.inputs)
        if self.kind.state == "copied" and not keyed:
            return "copied"
        whole = all(edge.keys or edge.grouping == "all" for edge in self.inputs)
        return "key" if keyed and whole else "all"

    @property
    def instances(self) -> int:
        """How many run at once: as many as were asked for, but one where a sink takes one writer."""
        return 1 if isinstance(self.kind, Write) and writers_of(self.kind.sink) == "one" else self.parallel


class OnTheWay(NamedTuple):
    """A step that records of a source come to: by which of its inputs, and by which output of the step before."""

    step: Step
    input: int
    port: int
