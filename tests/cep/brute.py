"""A matcher that defines what patterns and sequences mean: one attempt at a time, scanning ahead over all records.

It shares nothing with the real ones but the syntax tree. An attempt at a pattern starts somewhere, walks along the records
until it matches, dies or the records end; on the way it may start others (`every`). No index, no bound, no state between
records. Attempts at a sequence get into each other's way, so they walk together: `InPlaces`.
"""

from __future__ import annotations

import operator as op
from dataclasses import dataclass, field
from typing import Any

from headwater.cep import syntax as s

INF = 2**70
OPS = {
    "==": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
}


@dataclass
class Happening:
    """A record of a stream at a time."""

    stream: str
    time: int
    record: dict[str, Any]


@dataclass(eq=False)
class Attempt:
    stage: int
    taken: dict[str, list[dict[str, Any]]]
    first: int | None
    index: int  # the first record that it may see
    entered: int
    scope: tuple[int, int] | None = None
    count: int = 0
    sides: set[int] = field(default_factory=set)
    passed: bool = False
    failed: bool = False  # the absence beside an `or` did not hold
    born: int = 0
    moved: bool = False  # it has taken something since it began
    waits: tuple[int, ...] = ()  # of a sequence: the stages where it waits
    order: int = 0  # in which attempts came to their stages


def flatten(links: tuple[s.Link, ...], base: int = 0) -> tuple[list[Any], list[tuple[int, int]]]:
    stages: list[Any] = []
    scopes: list[tuple[int, int]] = []
    for link in links:
        start = base + len(stages)
        if isinstance(link.what, s.Group):
            inner, inner_scopes = flatten(link.what.links, start)
            stages += inner
            scopes += inner_scopes
        else:
            stages.append(link.what)
        if link.every:
            scopes.append((start, base + len(stages) - 1))
    return stages, scopes


class Brute:
    def __init__(self, chain: s.Chain, events: list[Happening], last_time: int | None = None) -> None:
        self.strict = chain.kind == "sequence"
        self.stages, self.scopes = flatten(chain.links)
        self.within = chain.within.us if chain.within else None
        self.events = events
        self.last_time = last_time if last_time is not None else events[-1].time if events else 0
        self.found: list[dict[str, Any]] = []
        self.once = not any(scope[0] == 0 for scope in self.scopes)
        self.entries = 0

    def run(self) -> list[dict[str, list[dict[str, Any]]]]:
        if not self.events:
            return []
        if self.strict:
            return InPlaces(self).run()
        self.todo = [self.fresh(0, self.events[0].time)]
        self.restart: tuple[int, int] | None = None
        self.alive = False
        while self.todo or (self.once and self.restart and not self.found and not self.alive):
            if not self.todo:
                assert self.restart is not None
                self.todo, self.restart = [self.fresh(*self.restart)], None
            self.walk(self.todo.pop(0))
        return self.found

    def fresh(self, index: int, time: int) -> Attempt:
        attempt = Attempt(0, {}, None, index, time, born=time)
        self.enter(attempt, 0, time)
        return attempt

    def enter(self, a: Attempt, stage: int, time: int) -> None:
        a.stage, a.entered, a.count, a.sides, a.passed, a.failed = stage, time, 0, set(), False, False
        self.entries += 1
        a.order = self.entries
        for scope in self.scopes:
            if scope[0] == stage:
                a.scope = scope

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def walk(self, a: Attempt) -> None:
        i = a.index
        while True:
            now = self.events[i].time if i < len(self.events) else INF
            old = a.first + self.within + 1 if a.first is not None and self.within is not None else 2 * INF
            wait = self.wait_of(a)
            deadline = a.entered + wait if wait is not None and not a.passed and not a.failed else 2 * INF
            if old <= now and old <= deadline:
                self.died(a, i, old, again=False)
                return
            if deadline <= now:
                if now == INF and a.born > self.last_time:
                    self.alive = True
                    return
                if self.waited(a, i, deadline):
                    return
                continue
            if i >= len(self.events):
                self.alive = True
                return
            if self.show(a, self.events[i], i):
                return
            i += 1

    def wait_of(self, a: Attempt) -> int | None:
        stage = self.stages[a.stage]
        for part in (stage.left, stage.right) if isinstance(stage, s.Both) else (stage,):
            if isinstance(part, s.Absent) and part.wait is not None:
                return part.wait.us
        return None

    def waited(self, a: Attempt, i: int, time: int) -> bool:
        stage = self.stages[a.stage]
        if a.first is None:
            a.first = time
        if isinstance(stage, s.Both) and stage.op == "and" and not a.sides:
            a.passed = True
            return False
        return self.move_on(a, i, time)

    def show(self, a: Attempt, e: Happening, i: int) -> bool:
        """Show a record; say whether the attempt is over."""
        stage = self.stages[a.stage]
        if isinstance(stage, s.Event) and a.count >= least(stage):
            for later in range(a.stage + 1, len(self.stages)):
                verdict = self.attempt_at(a, later, e, i)
                if verdict is not None:
                    return verdict
                if least(self.stages[later]) > 0:
                    break
        return bool(self.attempt_at(a, a.stage, e, i))

    def attempt_at(self, a: Attempt, at: int, e: Happening, i: int) -> bool | None:
        """Return None when the record does not suit the stage, else whether the attempt is over."""
        stage = self.stages[at]
        parts = (stage.left, stage.right) if isinstance(stage, s.Both) else (stage,)
        for n, part in enumerate(parts):
            if part.stream != e.stream or not all(self.holds(f, part, e, a) for f in part.filters):
                continue
            if isinstance(part, s.Absent):
                if at != a.stage or a.passed:
                    continue
                if isinstance(stage, s.Both) and stage.op == "or":
                    a.failed = True
                    return False
                self.died(a, i + 1, e.time, again=True)
                return True
            if isinstance(stage, s.Both) and at == a.stage and n in a.sides:
                continue
            if not isinstance(stage, s.Both) and at == a.stage and a.count >= most(stage):
                continue
            return self.take(a, at, part, n, e, i)
        return None

    def take(self, a: Attempt, at: int, part: s.Event, n: int, e: Happening, i: int) -> bool:
        if a.first is None:
            a.first = e.time
        while a.stage < at:
            self.passed(a, i + 1, e.time, leaving=True)
            self.enter(a, a.stage + 1, e.time)
        a.moved = True
        a.taken = {**a.taken, part.ref: [*a.taken.get(part.ref, []), e.record]}
        stage = self.stages[at]
        if isinstance(stage, s.Both):
            a.sides.add(n)
            absent = [p for p in (stage.left, stage.right) if isinstance(p, s.Absent)]
            if stage.op == "or" or (absent and (a.passed or absent[0].wait is None)) or len(a.sides) == 2:
                return self.move_on(a, i + 1, e.time)
            return False
        a.count += 1
        enough = max(least(stage), 1)
        if a.count >= enough and a.count < most(stage) and at + 1 < len(self.stages):
            if a.count == enough:
                self.passed(a, i + 1, e.time, leaving=False)
            return False
        return self.move_on(a, i + 1, e.time) if a.count >= enough else False

    def move_on(self, a: Attempt, i: int, time: int) -> bool:
        self.passed(a, i, time, leaving=True)
        rest = self.stages[a.stage + 1 :]
        if all(least(stage) == 0 for stage in rest):
            self.found.append(a.taken)
            if a.scope is not None:
                self.start(a, a.scope, i, time)
            return True
        self.enter(a, a.stage + 1, time)
        return False

    # -- starting anew -------------------------------------------------------------------------------------------------

    def passed(self, a: Attempt, i: int, time: int, *, leaving: bool) -> None:
        if a.scope is not None and a.scope[1] == a.stage:
            scope, a.scope = a.scope, None
            self.start(a, scope, i, time)

    def start(self, a: Attempt, scope: tuple[int, int], i: int, time: int) -> None:
        refs = {p.ref for stage in self.stages[: scope[0]] for p in events_in(stage)}
        taken = {ref: records for ref, records in a.taken.items() if ref in refs}
        new = Attempt(scope[0], taken, a.first if scope[0] else None, i, time, born=time)
        self.enter(new, scope[0], time)
        self.todo.append(new)

    def died(self, a: Attempt, i: int, time: int, *, again: bool) -> None:
        if a.scope is not None and (again or a.scope[0] == 0):
            self.start(a, a.scope, i, time)
        else:
            self.restart = max(self.restart or (0, 0), (i, time))

    # -- conditions ----------------------------------------------------------------------------------------------------

    def holds(self, value: Any, part: Any, e: Happening, a: Attempt) -> bool:
        return self.value(value, part, e, a) is True

    def value(self, v: Any, part: Any, e: Happening, a: Attempt) -> Any:
        match v:
            case s.Constant(constant):
                return constant
            case s.Attribute(name, ref, index):
                if ref is None or (ref == getattr(part, "ref", None) and index is None):
                    return e.record.get(name)
                records = a.taken.get(ref, [])
                index = index or s.Index(True)
                if index.offset >= len(records):
                    return None
                return records[-1 - index.offset if index.back else index.offset].get(name)
            case s.IsNull(inner):
                return self.value(inner, part, e, a) is None
            case s.Operation("not", (inner,)):
                x = self.value(inner, part, e, a)
                return None if x is None else not x
            case s.Operation("and" | "or" as sign, (left, right)):
                x, y = self.value(left, part, e, a), self.value(right, part, e, a)
                stop = sign == "or"
                if x is stop or y is stop:
                    return stop
                return None if x is None or y is None else not stop
            case s.Operation(sign, (left, right)):
                x, y = self.value(left, part, e, a), self.value(right, part, e, a)
                return None if x is None or y is None else OPS[sign](x, y)
        raise AssertionError(v)


class InPlaces:
    """Attempts at a sequence, which walk along the records together: at each place one of them waits, and no more.

    A record goes to the attempts that wait furthest on first. Who takes it waits next wherever it may go on and nobody does
    yet; who does not, or finds no place, is over. Each record or side that a stage lacks, once it has some, is a place.
    """

    def __init__(self, chain: Brute) -> None:
        self.c = chain
        self.attempts: list[Attempt] = []
        self.held: dict[tuple[int, int], Attempt] = {}
        self.at_each = (0, 0) in chain.scopes
        chain.todo, chain.restart = [], None

    def run(self) -> list[dict[str, Any]]:
        for i, e in enumerate(self.c.events):
            for a in [a for a in self.attempts if self.too_old(a, e.time)]:
                self.end(a, i, e.time, again=False)
            self.begin(i, e.time)
            self.broken = False
            broken = self.show(self.attempts, i, e)
            # the record that broke a sequence may begin the next attempt
            begun = self.begin(i, e.time)
            self.show([*broken, *(begun if self.broken else [])], i, e)
            self.begin(i, e.time)
        return self.c.found

    def too_old(self, a: Attempt, time: int) -> bool:
        return self.c.within is not None and a.first is not None and a.first + self.c.within < time

    def begin(self, index: int, time: int) -> list[Attempt]:
        """Let an attempt begin at the first place where nobody waits, or without `every` when there is none at all."""
        missing = (0, 0) not in self.held if self.at_each else not self.attempts and not self.c.found
        return [a for a in [self.c.fresh(index, time)] * missing if self.settle(a)]

    def show(self, attempts: list[Attempt], i: int, e: Happening) -> list[Attempt]:
        """Show a record to attempts and return those that begin because it broke others."""
        again: list[Attempt] = []
        left = sorted(attempts, key=lambda a: a.order)
        for a in left:
            self.leave(a)
        for stage in reversed(range(len(self.c.stages))):
            for a in [a for a in left if stage in a.waits]:
                new = a.first is None
                over = self.c.attempt_at(a, stage, e, i)
                if over is None and stage != min(a.waits):
                    continue
                left.remove(a)
                if over is None and not new:
                    again += self.end(a, i, e.time, again=True)
                elif (over or not self.settle(a)) and a in self.attempts:
                    self.attempts.remove(a)
                self.begin_others()
                if new and over is not None and stage > 0 and self.at_each:
                    # it began beyond the first place, where the record may begin another
                    left.append(self.c.fresh(i, e.time))
                    left[-1].waits = (0,)
        return again

    def begin_others(self) -> list[Attempt]:
        begun, self.c.todo = self.c.todo, []
        # at the first place, `begin` lets one start once all have been shown the record
        return [a for a in begun if not (self.at_each and a.stage == 0) and self.settle(a)]

    def settle(self, a: Attempt) -> bool:
        """Let an attempt wait wherever it may go on and nobody waits; say whether there is such a place."""
        stages, stage = self.c.stages, self.c.stages[a.stage]
        counts = isinstance(stage, s.Event)
        wanted = [a.stage] if not counts or a.count < most(stage) else []
        if counts and a.count >= least(stage):
            for later in range(a.stage + 1, len(stages)):
                wanted.append(later)
                if least(stages[later]) > 0:
                    break
        a.waits = tuple(at for at in wanted if self.place(a, at) not in self.held)
        self.held |= {self.place(a, at): a for at in a.waits}
        if a.waits and a not in self.attempts:
            self.attempts.append(a)
        return bool(a.waits)

    def place(self, a: Attempt, at: int) -> tuple[int, int]:
        if at != a.stage:
            return at, 0
        stage = self.c.stages[at]
        if not isinstance(stage, s.Event):
            return at, sum(n + 1 for n in a.sides)
        if at == 0 and least(stage) == 0:
            return at, min(a.count, 1)
        return at, a.count if a.count < least(stage) else 0

    def leave(self, a: Attempt) -> None:
        self.held = {place: other for place, other in self.held.items() if other is not a}

    def end(self, a: Attempt, i: int, time: int, *, again: bool) -> list[Attempt]:
        self.leave(a)
        self.attempts.remove(a)
        if self.at_each and a.scope in (None, (0, 0)):
            stage = self.c.stages[0]
            self.broken |= again and a.stage == 0 and isinstance(stage, s.Event) and a.count >= least(stage) > 0
            return []
        self.c.died(a, i, time, again=again)
        begun = self.begin_others() or self.begin(i, time)
        return begun if again else []


def events_in(stage: Any) -> list[s.Event]:
    parts = (stage.left, stage.right) if isinstance(stage, s.Both) else (stage,)
    return [part for part in parts if isinstance(part, s.Event)]


def least(stage: Any) -> int:
    if isinstance(stage, s.Event):
        return stage.times.least if stage.times else 1
    return 1


def most(stage: Any) -> float:
    if isinstance(stage, s.Event) and stage.times:
        return INF if stage.times.most is None else stage.times.most
    return 1
