"""The general matcher: attempts at a chain as tokens that records move along; every feature, one record at a time.

An attempt waits at a stage. A record that the stage takes moves it on; among several it is taken in the order in which they
came to their stages. Attempts that wait for an equal value are found by that value. Of a sequence, one waits at each place.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton, Pair, Stage, Take, Wait, first_places, sides
from headwater.cep.expressions import attributes, single
from headwater.errors import RecordError

Record = dict[str, Any]
Taken = dict[str, list[Record]]
NEVER = 2**63 - 1
FOREVER = 2**63 - 2  #: the last moment at which something may still happen


class Token:
    """One attempt: where it is and what it has taken."""

    __slots__ = (
        "count", "deadline", "entered", "entry", "first", "key", "passed", "pos", "scope", "seq", "taken", "waits",
    )  # fmt: skip

    def __init__(self, seq: int, key: int, pos: int, taken: Taken, first: int | None, scope: int) -> None:
        self.seq, self.key, self.pos, self.taken, self.first = seq, key, pos, taken, first
        self.scope = scope  #: the stretch it must get through before `every` starts anew, -1 for none
        self.count = 0  #: records taken at this stage; at a pair, 1 and 2 stand for the sides
        self.passed = False  #: whether an absence beside `and` has been waited out
        self.entered = self.entry = 0
        self.deadline = NEVER
        self.waits: list[int] = []  #: at a sequence, the stages where it waits


class Match:
    """A chain that was matched: what it took, when, and the stamps of its last record."""

    __slots__ = ("stamp", "taken", "time")

    def __init__(self, taken: Taken, time: int, stamp: tuple[int, int]) -> None:
        self.taken, self.time, self.stamp = taken, time, stamp


class TokenMatcher:
    """All attempts of all keys; at most `cap` that have taken something, the oldest of which goes first."""

    def __init__(self, automaton: Automaton, cap: int) -> None:
        self._a, self._cap = automaton, cap
        self.faults: list[
            str
        ] = []  #: why records could not be compared with what attempts took; emptied by who reads it
        self._conditions = {
            id(side): [self._computed(side, condition) for condition in side.cross]
            for stage in automaton.stages
            for side in sides(stage)
        }
        self._equal = [self._equality(stage) for stage in automaton.stages]
        self.tokens: dict[int, Token] = {}  #: by age
        self._waiting: dict[Any, dict[int, Token]] = {}  #: (key, stage[, value]) → token by entry
        self._deadlines: list[tuple[int, int]] = []
        self._starts: list[tuple[int, int]] = []
        self._keys: dict[int, int] = {}  #: key → tokens it has
        self.done: set[int] = set()  #: keys whose chain without `every` was matched
        self._started: dict[int, Token] = {}  #: those that have taken something, by the age of what they took first
        self.evicted = 0
        self._seq = 0
        self._clock = -(2**63)
        self._first_places = first_places(automaton.stages)
        self._in_place: dict[tuple[int, int], Token] = {}  #: who waits at which place of a key's sequence
        self._reborn: list[Token] = []  #: attempts that begin because a record broke others
        self._broken_at_start = False
        self._matches: list[Match] = []
        self._stamp = (0, 0)
        self._begins_with_wait = _wait_us(automaton.stages[0]) is not None
        self._opening = next((scope for scope in automaton.scopes if scope[0] == 0), None)
        self._starts_at_each = automaton.strict and self._opening == (0, 0)

    def _computed(self, side: Take | Wait, value: s.Value) -> Callable[[Any], Any]:
        """Return a function of (taken, record) that computes a value; without an answer it is missing, and a fault."""
        schemas, stage_of = self._a.schemas, self._a.stage_of
        compute = single(
            value, lambda a: schemas[side.stream if a.ref is None else stage_of(a.ref).stream][a.name], _reader
        )

        def run(moment: Any) -> Any:
            try:
                return compute(moment)
            except RecordError as error:
                self.faults += error.reasons
                return None

        return run

    def _equality(self, stage: Stage) -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
        """Return how to compute both sides of a condition `this record == earlier ones`, if the stage has one."""
        if self._a.strict or not isinstance(stage, Take) or stage.counted:
            return None
        for condition in stage.cross:
            if isinstance(condition, s.Operation) and condition.op == "==":
                for mine, other in (condition.args, condition.args[::-1]):
                    if attributes(mine) and all(a.ref is None for a in attributes(mine)) and _only_earlier(other):
                        return self._computed(stage, mine), self._computed(stage, other)
        return None

    # -- what happens -------------------------------------------------------------------------------------------------

    def offer(
        self, key: int, stream: int, passes: dict[int, bool], record: Record, time: int, stamp: tuple[int, int]
    ) -> list[Match]:
        """Show a record to the attempts of its key; `passes` says which places it suits by its own values."""
        self._matches = []
        self.tick(time)
        self._stamp = stamp
        if not self._keys.get(key) and key not in self.done:
            self._arm(key, 0, {}, None, time)
        if self._a.strict:
            self._rearm(key, time)
            self._show_in_turn(self._candidates(key, record, passes), stream, passes, record, time)
            self._rearm(key, time)
            # the record that broke a sequence may begin the next attempt
            reborn, self._reborn = self._reborn, []
            self._show_in_turn(reborn, stream, passes, record, time)
            self._rearm(key, time)
        else:
            for token in self._candidates(key, record, passes):
                if token.seq in self.tokens:
                    self._show(token, stream, passes, record, time)
        self._evict(time)
        self._restart(key, time)
        self._reborn = []
        return self._matches

    @property
    def busy(self) -> int:
        """The number of attempts that have taken something."""
        return len(self._started)

    def tick(self, time: int) -> list[Match]:
        """Let time pass: absences are waited out, attempts grow too old."""
        self._clock = max(self._clock, time)
        last = self._seq if time >= FOREVER else NEVER  # at the end of time nothing starts anew
        while True:
            deadline = self._deadlines[0][0] if self._deadlines else NEVER
            too_old = (
                self._starts[0][0] + self._a.within_us + 1 if self._starts and self._a.within_us is not None else NEVER
            )
            if min(deadline, too_old) > self._clock:
                return self._matches
            if too_old <= deadline:
                self._expire(too_old)
            else:
                self._wait_out(deadline, last)

    def advance(self, time: int) -> list[Match]:
        """Let time pass without a record, and return what that completes."""
        self._matches = []
        return self.tick(time)

    def _candidates(self, key: int, record: Record, passes: dict[int, bool]) -> list[Token]:
        found: list[Token] = []
        for pos, equal in enumerate(self._equal):
            if equal is None:
                found += self._waiting.get((key, pos), {}).values()
            elif passes.get(id(self._a.stages[pos])):
                found += self._waiting.get((key, pos, equal[0](({}, record))), {}).values()
        found.sort(key=lambda token: token.entry)
        return found

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _show(self, token: Token, stream: int, passes: dict[int, bool], record: Record, time: int) -> None:
        stage = self._a.stages[token.pos]
        if isinstance(stage, Take) and token.count >= stage.least and token.pos + 1 < len(self._a.stages):
            # the record may go to a later stage: what follows an optional or satisfied count has precedence
            for pos in range(token.pos + 1, len(self._a.stages)):
                if self._try(token, pos, stream, passes, record, time):
                    return
                later = self._a.stages[pos]
                if not (isinstance(later, Take) and later.least == 0):
                    break
        self._try(token, token.pos, stream, passes, record, time)

    def _show_in_turn(
        self, tokens: list[Token], stream: int, passes: dict[int, bool], record: Record, time: int
    ) -> None:
        """Show a record to attempts at a sequence, at their last stages first; who does not take it is over."""
        for token in tokens:
            self._leave_places(token)
        left = {token.seq: token for token in tokens}
        left_out = False
        for pos in range(len(self._a.stages) - 1, -1, -1):
            for token in [token for token in left.values() if pos in token.waits]:
                new = token.first is None
                if self._try(token, pos, stream, passes, record, time):
                    del left[token.seq]
                    if token.seq in self.tokens and not token.waits:
                        self._die(token, time, again=False)  # others wait wherever it would
                    left_out |= new and pos > 0
                elif pos == min(token.waits):
                    del left[token.seq]
                    self._not_taken(token, time)
        if left_out and self._starts_at_each:
            # an attempt began beyond the first place, where the record may begin another
            another = self._arm(tokens[0].key, 0, {}, None, time)
            if not self._try(another, 0, stream, passes, record, time):
                self._not_taken(another, time)
            elif another.seq in self.tokens and not another.waits:
                self._die(another, time, again=False)

    def _not_taken(self, token: Token, time: int) -> None:
        if token.first is not None:
            self._die(token, time, again=True)
            return
        self._leave(token)
        self._stay(token)
        if not token.waits:
            self._die(token, time, again=False)

    def _try(self, token: Token, pos: int, stream: int, passes: dict[int, bool], record: Record, time: int) -> bool:
        stage = self._a.stages[pos]
        for n, side in enumerate(sides(stage), 1):
            if side.stream != stream or not passes.get(id(side)):
                continue
            if not all(condition((token.taken, record)) for condition in self._conditions[id(side)]):
                continue
            if isinstance(side, Wait):
                if token.pos != pos or token.passed:
                    continue
                if isinstance(stage, Pair) and stage.op == "or":
                    token.deadline = NEVER  # the other side may still come
                else:
                    self._die(token, time, again=True)
                return True
            if isinstance(stage, Pair):
                if token.pos != pos or token.count & n == 0:
                    self._take(token, pos, side, record, time, n)
                    return True
            elif token.pos != pos or stage.most is None or token.count < stage.most:  # type: ignore[union-attr]
                self._take(token, pos, side, record, time, 0)
                return True
        return False

    def _take(self, token: Token, pos: int, side: Take, record: Record, time: int, n: int) -> None:
        self._leave(token)
        if token.first is None:
            self._begin(token, time)
        anew: list[int] = []
        while token.pos < pos:
            anew += self._pass(token)
            self._enter(token, token.pos + 1, time)
        token.taken = {**token.taken, side.ref: [*token.taken.get(side.ref, ()), record]}
        stage = self._a.stages[pos]
        if isinstance(stage, Pair):
            token.count |= n
            full = token.count == 3 if stage.op == "and" and not _has_wait(stage) else True
            if stage.op == "and" and _has_wait(stage):
                full = token.passed or _wait_of(stage).wait_us is None
        else:
            token.count += 1
            full = token.count >= max(stage.least, 1)  # type: ignore[union-attr]
            if token.count == max(stage.least, 1) and not self._a.strict:  # type: ignore[union-attr]
                self._come(token)
            more = stage.most is None or token.count < stage.most  # type: ignore[union-attr]
            if full and more and pos + 1 < len(self._a.stages):
                if token.count == max(stage.least, 1):  # type: ignore[union-attr]
                    anew += self._pass(token)
                full = False  # it waits for what follows, and takes more meanwhile
        if full:
            self._move_on(token, time)
        else:
            self._stay(token)
        self._start_scopes(token, anew, time)

    def _move_on(self, token: Token, time: int) -> None:
        """Leave a stage that is complete for the next one, or be done."""
        anew = self._pass(token)
        pos = token.pos + 1
        stages = self._a.stages
        rest = stages[pos:]
        if all(isinstance(stage, Take) and stage.least == 0 for stage in rest):
            # nothing more is needed: optional places at the end stay empty
            token.pos = len(stages) - 1
            self._finish(token, time)
        else:
            self._enter(token, pos, time)
            self._stay(token)
        self._start_scopes(token, anew, time)

    def _finish(self, token: Token, time: int) -> None:
        self._matches.append(Match(token.taken, time, self._stamp))
        scope = token.scope
        self._drop(token)
        if scope >= 0 and not self._starts_at_each:  # `every` before an optional last place, which was never entered
            self._start_scope(token, scope, time)
        elif self._opening is None:
            self.done.add(token.key)

    def _enter(self, token: Token, pos: int, time: int) -> None:
        before = self._a.stages[token.pos]
        has_come = isinstance(before, Take) and token.count >= max(before.least, 1)
        token.pos, token.count, token.passed, token.entered = pos, 0, False, time
        token.deadline = NEVER
        for scope, (first, _) in enumerate(self._a.scopes):
            if first == pos:
                token.scope = scope
        if self._a.strict or not has_come:
            self._come(token)
        wait = _wait_us(self._a.stages[pos])
        if wait is not None:
            token.deadline = time + wait
            heapq.heappush(self._deadlines, (token.deadline, token.seq))

    def _come(self, token: Token) -> None:
        """Put an attempt behind all others; of a pattern, one whose count has enough has come to what follows."""
        self._seq += 1
        token.entry = self._seq

    def _pass(self, token: Token) -> list[int]:
        """Return the stretch that starts anew, once the token has found its place: `every` before one that is complete."""
        if token.scope < 0 or self._a.scopes[token.scope][1] != token.pos:
            return []
        if self._starts_at_each and self._a.scopes[token.scope] == (0, 0):
            token.scope = -1  # a sequence starts anew when its first place is free, see _rearm
            return []
        scope, token.scope = token.scope, -1
        return [scope]

    def _start_scopes(self, token: Token, scopes: list[int], time: int) -> None:
        for scope in scopes:
            self._start_scope(token, scope, time)

    def _start_scope(self, token: Token, scope: int, time: int) -> Token:
        first, _ = self._a.scopes[scope]
        before = {side.ref for stage in self._a.stages[:first] for side in sides(stage) if isinstance(side, Take)}
        taken = {ref: records for ref, records in token.taken.items() if ref in before}
        new = self._arm(token.key, first, taken, token.first if first else None, time)
        if self._a.strict and not new.waits:
            self._drop(new)  # another waits there
        return new

    def _arm(self, key: int, pos: int, taken: Taken, first: int | None, time: int) -> Token:
        self._seq += 1
        token = Token(self._seq, key, pos, taken, first, -1)
        self.tokens[token.seq] = token
        self._keys[key] = self._keys.get(key, 0) + 1
        if first is not None:
            self._begin(token, first)
        self._enter(token, pos, time)
        self._stay(token)
        return token

    def _begin(self, token: Token, first: int) -> None:
        token.first = first
        self._started[token.seq] = token
        if self._a.within_us is not None:
            heapq.heappush(self._starts, (first, token.seq))

    def _rearm(self, key: int, time: int) -> None:
        """Let a sequence with `every` start anew when nothing waits at its first place."""
        if self._starts_at_each and (key, 0) not in self._in_place:
            token = self._arm(key, 0, {}, None, time)
            if self._broken_at_start:
                self._reborn.append(token)
        self._broken_at_start = False

    def _restart(self, key: int, time: int) -> Token | None:
        if not self._keys.get(key) and key not in self.done:
            return self._arm(key, 0, {}, None, time)
        return None

    def _die(self, token: Token, time: int, *, again: bool) -> None:
        """End an attempt that failed; `every` and a chain that was never matched start anew."""
        scope = token.scope
        self._drop(token)
        new = None
        if self._starts_at_each and token.pos == 0:
            least = self._a.stages[0].least if isinstance(self._a.stages[0], Take) else 0
            self._broken_at_start |= again and token.first is not None and token.count >= least > 0
        elif scope >= 0 and (again or self._a.scopes[scope][0] == 0):
            new = self._start_scope(token, scope, time)
        new = self._restart(token.key, time) or new
        if new is not None and self._a.strict and again and token.first is not None:
            self._reborn.append(new)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _wait_out(self, deadline: int, last: int) -> None:
        _, seq = heapq.heappop(self._deadlines)
        token = self.tokens.get(seq)
        if token is not None and token.deadline == deadline and seq <= last:
            self._waited_out(token, deadline)

    def _waited_out(self, token: Token, time: int) -> None:
        self._leave(token)
        stage = self._a.stages[token.pos]
        token.deadline = NEVER
        if token.first is None:
            # time is counted from the first thing that happens, here the absence itself
            self._begin(token, time)
        if isinstance(stage, Pair) and stage.op == "and" and token.count == 0:
            token.passed = True
            self._stay(token)
        else:
            self._move_on(token, time)
        self._restart(token.key, time)

    def _expire(self, time: int) -> None:
        first, seq = heapq.heappop(self._starts)
        token = self.tokens.get(seq)
        if token is not None and token.first == first:
            self._die(token, time, again=False)

    def _evict(self, time: int) -> None:
        while self.busy > self._cap:
            oldest = next(iter(self._started.values()))
            self.evicted += 1
            self._die(oldest, time, again=False)

    # -- where attempts are kept --------------------------------------------------------------------------------------

    def _place(self, token: Token) -> Any:
        equal = self._equal[token.pos]
        return (token.key, token.pos) if equal is None else (token.key, token.pos, equal[1]((token.taken, {})))

    def _stay(self, token: Token) -> None:
        if self._a.strict:
            token.waits = self._free_stages(token)
            if not token.waits:
                return
        self._wait(token)

    def _wait(self, token: Token) -> None:
        for pos in token.waits:
            self._in_place[self._place_in(token, pos)] = token
        self._waiting.setdefault(self._place(token), {})[token.entry] = token

    def _free_stages(self, token: Token) -> list[int]:
        """Return the stages of a sequence that could take an attempt's next record, and where nobody waits yet."""
        stages = self._a.stages
        stage, found = stages[token.pos], []
        if not isinstance(stage, Take) or stage.most is None or token.count < stage.most:
            found.append(token.pos)
        if isinstance(stage, Take) and token.count >= stage.least:
            for pos in range(token.pos + 1, len(stages)):
                found.append(pos)
                later = stages[pos]
                if not (isinstance(later, Take) and later.least == 0):
                    break
        return [pos for pos in found if self._place_in(token, pos) not in self._in_place]

    def _place_in(self, token: Token, pos: int) -> tuple[int, int]:
        stage = self._a.stages[pos]
        inner = 0
        if pos == token.pos:
            if not isinstance(stage, Take) or token.count < stage.least:
                inner = token.count
            elif pos == 0 and stage.least == 0:
                inner = min(token.count, 1)
        return token.key, self._first_places[pos] + inner

    def _leave_places(self, token: Token) -> None:
        for pos in token.waits:
            place = self._place_in(token, pos)
            if self._in_place.get(place) is token:
                del self._in_place[place]

    def _leave(self, token: Token) -> None:
        self._leave_places(token)
        place = self._place(token)
        waiting = self._waiting.get(place)
        if waiting and waiting.pop(token.entry, None) is not None and not waiting:
            del self._waiting[place]

    def _drop(self, token: Token) -> None:
        self._leave(token)
        if self.tokens.pop(token.seq, None) is None:
            return
        self._started.pop(token.seq, None)
        left = self._keys[token.key] - 1
        if left:
            self._keys[token.key] = left
        else:
            del self._keys[token.key]

    # -- saving -------------------------------------------------------------------------------------------------------

    def save(self, keys: Iterable[int]) -> dict[str, Any]:
        """Return the attempts of these keys as plain values."""
        chosen = set(keys)
        rows = [
            [t.seq, t.key, t.pos, t.taken, t.first, t.scope, t.count, t.passed, t.entered, t.entry, t.deadline, t.waits]
            for t in self.tokens.values()
            if t.key in chosen
        ]
        return {"tokens": rows, "done": sorted(self.done & chosen), "clock": self._clock, "evicted": self.evicted}

    def load(self, saved: dict[str, Any], slots: dict[int, int]) -> None:
        """Add saved attempts; `slots` maps their keys to ours."""
        base = self._seq
        for seq, key, pos, taken, first, scope, count, passed, entered, entry, deadline, waits in saved["tokens"]:
            token = Token(base + seq, slots[key], pos, taken, first, scope)
            token.count, token.passed, token.entered, token.entry, token.deadline = (
                count,
                passed,
                entered,
                base + entry,
                deadline,
            )
            token.waits = waits
            self._seq = max(self._seq, token.seq, token.entry)
            self.tokens[token.seq] = token
            self._keys[token.key] = self._keys.get(token.key, 0) + 1
            if deadline != NEVER:
                heapq.heappush(self._deadlines, (deadline, token.seq))
            if first is not None:
                self._begin(token, first)
            self._wait(token)
        self.done |= {slots[key] for key in saved["done"]}
        self._clock = max(self._clock, saved["clock"])

    def holding(self) -> list[int]:
        """Return the keys that hold anything: alone, an attempt that waits for its first record is as good as none."""
        lasting = {t.key for t in self.tokens.values() if self._begins_with_wait or t.first is not None}
        return list(lasting | self.done)

    def count_records(self) -> int:
        """Return how many records attempts hold."""
        return sum(len(records) for token in self.tokens.values() for records in token.taken.values())


def _reader(attribute: s.Attribute) -> Callable[[Any], Any]:
    name, ref, index = attribute.name, attribute.ref, attribute.index
    if ref is None:
        return lambda moment: moment[1].get(name)
    back, offset = (index.back, index.offset) if index else (True, 0)

    def earlier(moment: Any) -> Any:
        records = moment[0].get(ref, ())
        if offset >= len(records):
            return None
        return records[-1 - offset if back else offset].get(name)

    return earlier


def _only_earlier(value: s.Value) -> bool:
    return bool(attributes(value)) and all(a.ref is not None for a in attributes(value))


def _has_wait(pair: Pair) -> bool:
    return any(isinstance(side, Wait) for side in pair.sides)


def _wait_of(pair: Pair) -> Wait:
    return next(side for side in pair.sides if isinstance(side, Wait))


def _wait_us(stage: Stage) -> int | None:
    return next((side.wait_us for side in sides(stage) if isinstance(side, Wait)), None)
