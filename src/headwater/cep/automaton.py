"""A chain as stages: what each place takes, under which conditions, and where matching starts anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.cep import syntax as s
from headwater.cep.diagnostics import error_at
from headwater.cep.expressions import Translator, conjuncts
from headwater.cep.functions import COMPARISONS
from headwater.data.schema import Schema, Type
from headwater.errors import QueryError, listed, suggestion
from headwater.flow.expr import Call, Expr


@dataclass(frozen=True, eq=False)
class Condition:
    """What must hold of a record and of earlier ones.

    The record's own columns go by their names, those of an earlier event by what `label` calls them.
    """

    expr: Expr
    reads: Mapping[str, s.Attribute]  #: by the names they have in the expression
    schema: Schema

    def earlier(self, part: Expr | None = None) -> list[s.Attribute]:
        """Return what it reads of earlier events, or what a part of it does."""
        attributes = (self.reads[name] for name in sorted((self.expr if part is None else part).columns()))
        return [attribute for attribute in attributes if attribute.ref is not None]

    def comparisons(self) -> Iterator[tuple[str, Expr, Expr]]:
        """Say how it compares the record with earlier ones: operator, value of the record alone, value of others alone."""
        match self.expr:
            case Call(op, (left, right)) if op in COMPARISONS:
                for sign, value, other in ((op, left, right), (COMPARISONS[op], right, left)):
                    alone = value.columns() and not self.earlier(value)
                    if alone and other.columns() and len(self.earlier(other)) == len(other.columns()):
                        yield sign, value, other


@dataclass(frozen=True)
class Accept:
    """Takes a record of a stream, or several.

    Conditions are split: `own` reads the record alone, `cross` read earlier ones too.
    """

    stream: int
    ref: str
    own: Expr | None
    cross: tuple[Condition, ...]
    least: int = 1
    most: int | None = 1
    counted: bool = False

    def __str__(self) -> str:
        count = f"<{self.least}:{'' if self.most is None else self.most}>" if self.counted else ""
        return f"{self.ref}={self.stream}{_conditions_text(self.cross)}{count}"


@dataclass(frozen=True)
class Absence:
    """Is passed when no such record came for `wait_us`; None means before the other side of its pair was filled."""

    stream: int
    own: Expr | None
    cross: tuple[Condition, ...]
    wait_us: int | None

    def __str__(self) -> str:
        wait = "" if self.wait_us is None else f" for {self.wait_us / 1e6:g} s"
        return f"not {self.stream}{_conditions_text(self.cross)}{wait}"


@dataclass(frozen=True)
class Pair:
    """Is passed when both sides are, or either."""

    op: Literal["and", "or"]
    sides: tuple[Accept | Absence, Accept | Absence]

    def __str__(self) -> str:
        return f"{self.sides[0]} {self.op} {self.sides[1]}"


Stage = Accept | Absence | Pair


@dataclass(frozen=True)
class Automaton:
    """The stages of a chain, one after the other.

    `scopes` are the stretches of stages, first and last, before which `every` stands.
    """

    strict: bool  #: a sequence: each record must be taken, or the attempt fails
    stages: tuple[Stage, ...]
    scopes: tuple[tuple[int, int], ...]
    within_us: int | None
    streams: tuple[str, ...]
    schemas: tuple[Schema, ...]

    def __str__(self) -> str:
        """Return in words what partial matches are about; what a record alone must hold is asked of the next one."""
        every = "".join(f" every {first + 1} to {last + 1}" for first, last in self.scopes)
        return f"{(', ' if self.strict else ' -> ').join(map(str, self.stages))} of {', '.join(self.streams)}{every}"

    def accepts(self) -> list[Accept]:
        """Return every place that takes a record, in order."""
        return [side for side in self.sides() if isinstance(side, Accept)]

    def sides(self) -> list[Accept | Absence]:
        """Return the parts of all stages, in order."""
        return [side for stage in self.stages for side in sides(stage)]

    def event_of(self, ref: str) -> Accept:
        """Return the place with this name."""
        return next(take for take in self.accepts() if take.ref == ref)


def _conditions_text(conditions: tuple[Condition, ...]) -> str:
    return f"[{' and '.join(str(condition.expr) for condition in conditions)}]" if conditions else ""


def sides(stage: Stage) -> tuple[Accept | Absence, ...]:
    """Return the one or two parts of a stage."""
    return stage.sides if isinstance(stage, Pair) else (stage,)


def first_places(stages: tuple[Stage, ...]) -> list[int]:
    """Number the places of a sequence and return each stage's first; the last entry is how many there are.

    At a place at most one attempt waits. A stage is one place, and one more for each record or side that it still lacks once
    it has some: `a<3>` is three places, as `a, a, a` is. A count that has enough waits where those wait that have none; only
    before `a*` and `a?` at the start there is always room for a new attempt.
    """
    firsts = [0]
    for stage in stages:
        if isinstance(stage, Accept):
            count = max(stage.least, 1) + (stage is stages[0] and stage.least == 0)
        else:
            count = len(sides(stage)) + 1
        firsts.append(firsts[-1] + count)
    return firsts


class ChainReader:
    """Makes an automaton of a chain and checks every name and type in it."""

    def __init__(self, text: str, chain: s.Chain, schemas: Mapping[str, Schema]) -> None:
        self._text, self._chain, self._schemas = text, chain, schemas
        self._streams: list[str] = []
        self._refs: dict[str, tuple[str, bool]] = {}  #: name → its stream, and whether it takes several records
        self._events = events_of(chain.links)

    def automaton(self) -> Automaton:
        """Return the automaton, or complain of the first thing that does not fit."""
        self._name_all()
        stages: list[Stage] = []
        scopes: list[tuple[int, int]] = []
        self._add(self._chain.links, stages, scopes, within_every=False)
        within = self._chain.within.us if self._chain.within else None
        schemas = tuple(self._schemas[name] for name in self._streams)
        strict = self._chain.kind == "sequence"
        return Automaton(strict, tuple(stages), tuple(scopes), within, tuple(self._streams), schemas)

    def _name_all(self) -> None:
        for event in self._events:
            self._stream(event.stream, event.at)
            if isinstance(event, s.Event) and event.ref:
                if event.ref in self._refs:
                    raise error_at(self._text, event.at, f"the name {event.ref!r} is used twice; names must be unique")
                self._refs[event.ref] = (event.stream, event.times is not None)

    def _stream(self, name: str, at: s.Position) -> int:
        if name not in self._schemas:
            raise unknown_stream(self._text, at, name, self._schemas)
        if name not in self._streams:
            self._streams.append(name)
        return self._streams.index(name)

    def _add(
        self, links: tuple[s.Link, ...], stages: list[Stage], scopes: list[tuple[int, int]], *, within_every: bool
    ) -> None:
        for link in links:
            first = len(stages)
            if link.every and within_every:
                raise error_at(self._text, link.at, "'every' inside another 'every' changes nothing; leave one out")
            match link.what:
                case s.Group(inner):
                    self._add(inner, stages, scopes, within_every=within_every or link.every)
                case s.Event():
                    stages.append(self._take(link.what))
                case s.Absent():
                    stages.append(self._wait(link.what, alone=True))
                case s.Both(op, left, right):
                    stages.append(Pair(op, (self._side(left), self._side(right))))
                    self._check_pair(link.what)
            if link.every:
                scopes.append((first, len(stages) - 1))

    def _side(self, side: s.Event | s.Absent) -> Accept | Absence:
        if isinstance(side, s.Absent):
            return self._wait(side, alone=False)
        if side.times is not None:
            raise error_at(self._text, side.times.at, "a count cannot stand beside 'and' or 'or'")
        return self._take(side)

    def _check_pair(self, both: s.Both) -> None:
        absent = [side for side in (both.left, both.right) if isinstance(side, s.Absent)]
        if len(absent) == 2:
            raise error_at(self._text, both.at, "one side of 'and' or 'or' must be an event that comes")
        if absent and both.op == "or" and absent[0].wait is None:
            raise error_at(self._text, absent[0].at, "absence beside 'or' needs a time, such as 'not b for 10 sec'")

    def _take(self, event: s.Event) -> Accept:
        own, cross = self._conditions(event, event.ref)
        times = event.times or s.Times(1, 1)
        ref = event.ref or f"#{self._number(event)}"
        return Accept(
            self._stream(event.stream, event.at), ref, own, cross, times.least, times.most, event.times is not None
        )

    def _wait(self, absent: s.Absent, *, alone: bool) -> Absence:
        if self._chain.kind == "sequence":
            raise error_at(self._text, absent.at, "absence belongs to a pattern; write '->' instead of ','")
        if alone and absent.wait is None:
            raise error_at(self._text, absent.at, "absence needs a time, such as 'not b for 10 sec'")
        own, cross = self._conditions(absent, None)
        wait = absent.wait.us if absent.wait else None
        return Absence(self._stream(absent.stream, absent.at), own, cross, wait)

    def _conditions(self, event: s.Event | s.Absent, ref: str | None) -> tuple[Expr | None, tuple[Condition, ...]]:
        own: Expr | None = None
        cross: list[Condition] = []
        resolver = _Resolver(self._text, event.stream, self._schemas, ref, self._refs, self._earlier(event))
        translator = Translator(self._text, resolver.resolve)
        for value in conjuncts(event.filters):
            expr = translator.condition(value)
            condition = resolver.condition(expr)
            if condition.earlier():
                cross.append(condition)
            else:
                own = expr if own is None else own & expr
        return own, tuple(cross)

    def _number(self, event: s.Event | s.Absent) -> int:
        # by identity: two unnamed events may be equal
        return next(i for i, other in enumerate(self._events) if other is event)

    def _earlier(self, event: s.Event | s.Absent) -> set[str]:
        before = self._events[: self._number(event)]
        return {e.ref for e in before if isinstance(e, s.Event) and e.ref}


@dataclass(frozen=True)
class _Resolver:
    """Finds what an attribute in a condition of one event means."""

    text: str
    stream: str
    schemas: Mapping[str, Schema]
    ref: str | None
    refs: Mapping[str, tuple[str, bool]]
    earlier: set[str]
    reads: dict[str, tuple[s.Attribute, Type]] = field(default_factory=dict)  #: what was found, by column

    def resolve(self, attribute: s.Attribute) -> tuple[str, Type]:
        """Return a column and its type, or complain."""
        if self._is_own(attribute):
            kind = column_type(self.text, attribute, self.stream, self.schemas[self.stream])
            return self._reads(attribute.name, s.Attribute(attribute.name), kind)
        ref = attribute.ref
        assert ref is not None
        if ref not in self.refs:
            raise error_at(
                self.text,
                attribute.at,
                f"there is no event {ref!r}{suggestion(ref, self.refs)}; events are {listed(self.refs)}",
            )
        if ref != self.ref and ref not in self.earlier:
            raise error_at(
                self.text, attribute.at, f"{ref!r} comes later; a condition reads its own event and earlier ones"
            )
        stream, _ = self.refs[ref]
        full = with_index(attribute, self.refs)
        return self._reads(label(full), full, column_type(self.text, attribute, stream, self.schemas[stream]))

    def _reads(self, column: str, attribute: s.Attribute, kind: Type) -> tuple[str, Type]:
        self.reads[column] = (attribute, kind)
        return column, kind

    def condition(self, expr: Expr) -> Condition:
        """Return an expression of columns that were found, with what it reads."""
        columns = {column: self.reads[column] for column in sorted(expr.columns())}
        schema = Schema(tuple((column, kind) for column, (_, kind) in columns.items()))
        return Condition(expr, {column: attribute for column, (attribute, _) in columns.items()}, schema)

    def _is_own(self, attribute: s.Attribute) -> bool:
        own_name = attribute.ref == self.ref or (attribute.ref == self.stream and attribute.ref not in self.refs)
        return attribute.ref is None or (own_name and attribute.index is None)


def with_index(attribute: s.Attribute, refs: Mapping[str, tuple[str, bool]]) -> s.Attribute:
    """Return the attribute with the index it means: of several records, the last."""
    assert attribute.ref is not None
    several = refs[attribute.ref][1]
    index = (attribute.index or s.Index(True)) if several else None
    return s.Attribute(attribute.name, attribute.ref, index, attribute.at)


def label(attribute: s.Attribute) -> str:
    """Return the name of an event's column in the result of a match, before `select` renames it."""
    index = attribute.index
    suffix = "" if index is None else f"[{'last-' if index.back else ''}{index.offset}]"
    return f"{attribute.ref}{suffix}.{attribute.name}"


def column_type(text: str, attribute: s.Attribute, stream: str, schema: Schema) -> Type:
    """Return the type of a stream's column, or complain that it has none such."""
    if attribute.name not in schema:
        near = suggestion(attribute.name, schema) or f"; columns are {listed(schema)}"
        raise error_at(text, attribute.at, f"stream {stream!r} has no column {attribute.name!r}{near}")
    return schema[attribute.name]


def owner(text: str, attribute: s.Attribute, schemas: Mapping[str, Schema], what: str, of: str = "") -> str:
    """Return the event, or the side of a join, that an attribute is of: the one it names, or the only one that has it."""
    ref, name = attribute.ref, attribute.name
    if ref is None:
        holding = [each for each, schema in schemas.items() if name in schema]
        if len(holding) == 1:
            return holding[0]
        those = " or ".join(f"{each}.{name}" for each in holding)
        fix = f"did you mean {those}?" if holding else f"{what}s are {listed(schemas)}"
        raise error_at(text, attribute.at, f"of which {what} is {name!r}; {fix}")
    if ref not in schemas:
        near = suggestion(ref, schemas) or f"; {what}s are {listed(schemas)}"
        raise error_at(text, attribute.at, f"there is no {what} {ref!r}{of}{near}")
    return ref


def unknown_stream(text: str, at: s.Position, name: str, schemas: Mapping[str, Schema]) -> QueryError:
    """Return the error about a stream that nobody defined."""
    near = suggestion(name, schemas) or f"; streams are {listed(schemas)}"
    return error_at(text, at, f"there is no stream {name!r}{near}")


def events_of(links: tuple[s.Link, ...]) -> list[s.Event | s.Absent]:
    """Return every event and absence of a chain, in the order they are written."""
    events: list[s.Event | s.Absent] = []
    for link in links:
        match link.what:
            case s.Group(inner):
                events += events_of(inner)
            case s.Both(_, left, right):
                events += [left, right]
            case s.Event() | s.Absent():
                events.append(link.what)
    return events
