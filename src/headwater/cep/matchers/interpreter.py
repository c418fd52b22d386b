"""Runs any chain, one record at a time: attempts are tokens that records move along. Slow, and plain enough to believe.

What compiled matchers cannot run falls to it, and tests ask it what those should find. An attempt waits at a stage. A record
that the stage takes moves it on; several are shown it in the order in which they came to their stages. Attempts that wait
for an equal value are found by that value. Of a sequence, one waits at each place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Absence, Accept, Automaton, Pair, Stage, label, sides
from headwater.cep.matchers.compiled import own_mask
from headwater.cep.matchers.conditions import Bindings, Conditions, Record, reader
from headwater.cep.matchers.waiting import NEVER, ShownRecord, Token, Tokens, optional
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, column_of
from headwater.operators.chunk import Chunk
from headwater.operators.operator import dead_letters

FOREVER = 2**63 - 2  #: the last moment at which something may still happen
_ATTEMPT_BYTES, _RECORD_BYTES = 700, 400  #: of CPython's objects and dictionaries, measured


class Interpreter:
    """All attempts of all keys; at most `cap` that have taken something, the oldest of which goes first."""

    def __init__(self, automaton: Automaton, attributes: tuple[s.Attribute, ...], cap: int) -> None:
        a = self._a = automaton
        self._cap = cap
        self._tests = [(side, own_mask(a, side)) for side in a.sides()]
        self._conditions = Conditions(a)
        self._tokens = Tokens(a, self._conditions)
        streams = [a.event_of(attribute.ref or "").stream for attribute in attributes]
        self._outputs = [
            (label(w), reader(w), a.schemas[of][w.name]) for w, of in zip(attributes, streams, strict=True)
        ]
        columns = {(of, w.name) for w, of in zip(attributes, streams, strict=True)}
        for side in a.sides():
            for attribute in (attribute for condition in side.cross for attribute in condition.reads.values()):
                columns.add((a.event_of(attribute.ref).stream if attribute.ref else side.stream, attribute.name))
        self._columns = [sorted(name for stream, name in columns if stream == of) for of in range(len(a.streams))]
        self._every_record_counts = a.strict or any(isinstance(side, Absence) for side in a.sides())
        self._begins_with_wait = _wait_us(a.stages[0]) is not None
        self._opening = next((scope for scope in a.scopes if scope[0] == 0), None)
        self._starts_at_each = a.strict and self._opening == (0, 0)

        self._done: set[int] = set()  #: keys whose chain without `every` was matched
        self._slots = 0
        self.evicted = 0  #: how many attempts went because of the cap
        self._reborn: list[Token] = []  #: attempts that begin because a record broke others
        self._broken_at_start = False
        #: what each took, the stamps of its last record, and when it was complete
        self._matches: list[tuple[Bindings, tuple[int, int], int]] = []
        self._stamp = (0, 0)
        self._unfit: list[tuple[int, Record, list[int], str]] = []

    # -- what a matcher is asked --------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """The number of attempts that have taken something."""
        return len(self._tokens.started)

    @property
    def nbytes(self) -> int:
        """About how many bytes attempts and their records take as Python objects."""
        records = sum(len(records) for token in self._tokens for records in token.taken.values())
        return records * _RECORD_BYTES + len(self._tokens) * _ATTEMPT_BYTES

    def holding(self) -> Array:
        """Return which keys hold anything: alone, an attempt that waits for its first record is as good as none."""
        mask = np.zeros(self._slots, np.bool_)
        mask[[t.key for t in self._tokens if self._begins_with_wait or t.first is not None]] = True
        mask[list(self._done)] = True
        return mask

    def reserve(self, slots: int) -> None:
        """Learn how many keys there are; tokens find their room."""
        self._slots = max(self._slots, slots)

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        masks = [(id(side), chunk.mask(side.stream, test).tolist()) for side, test in self._tests]
        records: list[tuple[int, Record]] = [(0, {})] * chunk.length
        for part in chunk.parts:
            places = range(chunk.length) if part.places is None else part.places.tolist()
            columns = {name: part.batch.columns[name] for name in self._columns[part.stream]}
            rows = part.batch.of_columns(columns).rows() if columns else [{}] * part.batch.length
            for place, record in zip(places, rows, strict=True):
                records[place] = (part.stream, record)
        times, keys, stamps = chunk.times.tolist(), chunk.slots.tolist(), chunk.stamps.tolist()
        for i, (stream, record) in enumerate(records):
            event = ShownRecord({side for side, mask in masks if mask[i]}, record, times[i])
            if self._every_record_counts or event.sides:
                self._offer(keys[i], event, tuple(stamps[i]))
                if self._conditions.faults:
                    self._unfit.append((stream, record, stamps[i], self._conditions.faults[0]))
                    self._conditions.faults.clear()
        return self._take_matches()

    def advance(self, time: int) -> list[Batch]:
        """Let time pass for all keys: absences are waited out, attempts grow too old; return matches in order of time."""
        last = self._tokens.seq if time >= FOREVER else NEVER  # at the end of time nothing starts anew
        for key in self._tokens.timed_keys():
            self._pass_time(key, time, last)
        self._matches.sort(key=lambda match: match[2])
        return self._take_matches()

    def _take_matches(self) -> list[Batch]:
        matches, self._matches = self._matches, []
        if not matches:
            return []
        columns = {name: column_of([read((m, {})) for m, _, _ in matches], kind) for name, read, kind in self._outputs}
        return [Batch(columns, len(matches), np.array([stamp for _, stamp, _ in matches], np.int64).reshape(-1, 2))]

    def unfit(self, step: str) -> Batch | None:
        """Return, once, dead letters for records that could not be compared with earlier ones: those did not take them."""
        letters = []
        for stream, record, stamps, why in self._unfit:
            columns = {name: column_of([value], self._a.schemas[stream][name]) for name, value in record.items()}
            letters.append(dead_letters(step, [why], Batch(columns, 1, np.array([stamps], np.int64))))
        self._unfit.clear()
        return concat_batches(letters) if letters else None

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the attempts of these keys as plain values; their key counts along `slots`."""
        place = {slot: i for i, slot in enumerate(slots.tolist())}
        attempts = [token for token in self._tokens if token.key in place]
        tokens = [[getattr(t, name) if name != "key" else place[t.key] for name in Token.__slots__] for t in attempts]
        done = sorted(place[slot] for slot in self._done if slot in place)
        return {"tokens": tokens, "done": done}

    def load(self, state: dict[str, Any], slots: Array) -> None:
        """Add saved attempts; `slots` are the keys that theirs have here."""
        base = self._tokens.seq
        for row in state["tokens"]:
            fields = dict(zip(Token.__slots__, row, strict=True))
            token = Token(base + fields["seq"], int(slots[fields["key"]]), fields["pos"], fields["taken"], None)
            for name in ("scope", "count", "passed", "deadline", "waits"):
                setattr(token, name, fields[name])
            token.came = base + fields["came"]
            self._tokens.seq = max(self._tokens.seq, token.seq, token.came)
            self._tokens.add(token, fields["first"])
            if token.deadline != NEVER:
                self._tokens.expect(token, token.deadline)
            self._tokens.wait(token)
        self._done |= {int(slots[key]) for key in state["done"]}

    # -- what happens -------------------------------------------------------------------------------------------------

    def _offer(self, key: int, event: ShownRecord, stamp: tuple[int, int]) -> None:
        """Show a record to the attempts of its key."""
        self._pass_time(key, event.time, NEVER)
        self._stamp = stamp
        self._restart(key, event.time)
        if self._a.strict:
            self._rearm(key, event.time)
            self._show_in_turn(self._tokens.candidates(key, event), event)
            self._rearm(key, event.time)
            # the record that broke a sequence may begin the next attempt
            reborn, self._reborn = self._reborn, []
            self._show_in_turn(reborn, event)
            self._rearm(key, event.time)
        else:
            for token in self._tokens.candidates(key, event):
                if token in self._tokens:
                    self._show(token, event)
        while self.live > self._cap:
            self.evicted += 1
            self._die(next(iter(self._tokens.started.values())), event.time, again=False)
        self._restart(key, event.time)
        self._reborn = []

    def _pass_time(self, key: int, time: int, last: int) -> None:
        while (due := self._tokens.due(key, time)) is not None:
            token, at, too_old = due
            if too_old:
                self._die(token, at, again=False)
            elif token.seq <= last:
                self._wait_out(token, at)

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _show(self, token: Token, event: ShownRecord) -> None:
        """Show a record to an attempt: what follows an optional or satisfied count has precedence."""
        if not any(self._try(token, pos, event) for pos in self._tokens.stages_after(token)):
            self._try(token, token.pos, event)

    def _show_in_turn(self, tokens: list[Token], event: ShownRecord) -> None:
        """Show a record to attempts at a sequence, at their last stages first; who does not take it is over."""
        for token in tokens:
            self._tokens.leave_places(token)
        remaining = {token.seq: token for token in tokens}
        left_out = False
        for pos in range(len(self._a.stages) - 1, -1, -1):
            for token in [token for token in remaining.values() if pos in token.waits]:
                new, last = token.first is None, pos == min(token.waits)
                is_taken = self._show_at(token, pos, event, last=last)
                if is_taken or last:
                    del remaining[token.seq]
                left_out |= is_taken and new and pos > 0
        if left_out and self._starts_at_each:
            # an attempt began beyond the first place, where the record may begin another
            self._show_at(self._arm(tokens[0].key, 0, {}, None, event.time), 0, event, last=True)

    def _show_at(self, token: Token, pos: int, event: ShownRecord, *, last: bool) -> bool:
        """Show a record to an attempt at one of the stages where it waits, perhaps the last; say whether it was taken."""
        is_taken = self._try(token, pos, event)
        if is_taken:
            if token in self._tokens and not token.waits:
                self._die(token, event.time, again=False)  # others wait wherever it would
        elif last and token.first is not None:
            self._die(token, event.time, again=True)
        elif last:
            self._tokens.leave(token)
            self._tokens.stay(token)
            if not token.waits:
                self._die(token, event.time, again=False)
        return is_taken

    def _try(self, token: Token, pos: int, event: ShownRecord) -> bool:
        stage = self._a.stages[pos]
        for n, side in enumerate(sides(stage), 1):
            if id(side) not in event.sides or not self._conditions.hold(side, token.taken, event.record):
                continue
            if isinstance(side, Absence):
                if token.pos != pos or token.passed:
                    continue
                if isinstance(stage, Pair) and stage.op == "or":
                    token.deadline = NEVER  # the other side may still come
                else:
                    self._die(token, event.time, again=True)
                return True
            fits = token.count & n == 0 if isinstance(stage, Pair) else side.most is None or token.count < side.most
            if token.pos != pos or fits:
                self._take(token, pos, side, event, n)
                return True
        return False

    def _take(self, token: Token, pos: int, side: Accept, event: ShownRecord, n: int) -> None:
        self._tokens.leave(token)
        if token.first is None:
            self._tokens.begin(token, event.time)
        anew: list[int] = []
        while token.pos < pos:
            anew += self._pass(token)
            self._enter(token, token.pos + 1, event.time)
        token.taken = {**token.taken, side.ref: [*token.taken.get(side.ref, ()), event.record]}
        stage = self._a.stages[pos]
        if isinstance(stage, Pair):
            token.count |= n
            absence = next((other for other in stage.sides if isinstance(other, Absence)), None)
            full = stage.op == "or" or token.count == 3
            if stage.op == "and" and absence is not None:
                full = token.passed or absence.wait_us is None
        else:
            token.count += 1
            enough = max(side.least, 1)
            full = token.count >= enough
            if token.count == enough and not self._a.strict:
                self._tokens.come(token)
            if full and (side.most is None or token.count < side.most) and pos + 1 < len(self._a.stages):
                if token.count == enough:
                    anew += self._pass(token)
                full = False  # it waits for what follows, and takes more meanwhile
        if full:
            self._move_on(token, event.time)
        else:
            self._tokens.stay(token)
        for scope in anew:
            self._start_scope(token, scope, event.time)

    def _move_on(self, token: Token, time: int) -> None:
        """Leave a stage that is complete for the next one, or be done: optional places at the end stay empty."""
        anew = self._pass(token)
        if all(map(optional, self._a.stages[token.pos + 1 :])):
            token.pos = len(self._a.stages) - 1
            self._finish(token, time)
        else:
            self._enter(token, token.pos + 1, time)
            self._tokens.stay(token)
        for scope in anew:
            self._start_scope(token, scope, time)

    def _finish(self, token: Token, time: int) -> None:
        self._matches.append((token.taken, self._stamp, time))
        self._tokens.drop(token)
        if token.scope >= 0 and not self._starts_at_each:
            self._start_scope(
                token, token.scope, time
            )  # `every` before an optional last place, which was never entered
        elif self._opening is None:
            self._done.add(token.key)

    def _enter(self, token: Token, pos: int, time: int) -> None:
        before = self._a.stages[token.pos]
        has_come = isinstance(before, Accept) and token.count >= max(before.least, 1)
        token.pos, token.count, token.passed, token.deadline = pos, 0, False, NEVER
        token.scope = next((i for i, (first, _) in enumerate(self._a.scopes) if first == pos), token.scope)
        if self._a.strict or not has_come:
            self._tokens.come(token)
        wait = _wait_us(self._a.stages[pos])
        if wait is not None:
            self._tokens.expect(token, time + wait)

    def _pass(self, token: Token) -> list[int]:
        """Return the stretch that starts anew, once the token has found its place: `every` before one that is complete."""
        if token.scope < 0 or self._a.scopes[token.scope][1] != token.pos:
            return []
        scope, token.scope = token.scope, -1
        # a sequence starts anew when its first place is free, see _rearm
        return [] if self._starts_at_each and self._a.scopes[scope] == (0, 0) else [scope]

    def _wait_out(self, token: Token, time: int) -> None:
        self._tokens.leave(token)
        stage = self._a.stages[token.pos]
        token.deadline = NEVER
        if token.first is None:
            self._tokens.begin(
                token, time
            )  # time is counted from the first thing that happens, here the absence itself
        if isinstance(stage, Pair) and stage.op == "and" and token.count == 0:
            token.passed = True
            self._tokens.stay(token)
        else:
            self._move_on(token, time)
        self._restart(token.key, time)

    # -- how attempts begin and end -----------------------------------------------------------------------------------

    def _start_scope(self, token: Token, scope: int, time: int) -> Token:
        first, _ = self._a.scopes[scope]
        before = {side.ref for stage in self._a.stages[:first] for side in sides(stage) if isinstance(side, Accept)}
        bindings = {ref: records for ref, records in token.taken.items() if ref in before}
        new = self._arm(token.key, first, bindings, token.first if first else None, time)
        if self._a.strict and not new.waits:
            self._tokens.drop(new)  # another waits there
        return new

    def _arm(self, key: int, pos: int, bindings: Bindings, first: int | None, time: int) -> Token:
        token = self._tokens.new(key, pos, bindings)
        self._tokens.add(token, first)
        self._enter(token, pos, time)
        self._tokens.stay(token)
        return token

    def _rearm(self, key: int, time: int) -> None:
        """Let a sequence with `every` start anew when nothing waits at its first place."""
        if self._starts_at_each and self._tokens.is_first_place_free(key):
            token = self._arm(key, 0, {}, None, time)
            if self._broken_at_start:
                self._reborn.append(token)
        self._broken_at_start = False

    def _restart(self, key: int, time: int) -> Token | None:
        """Begin an attempt if the key has none and its chain was not matched for good."""
        return self._arm(key, 0, {}, None, time) if not self._tokens.has_any(key) and key not in self._done else None

    def _die(self, token: Token, time: int, *, again: bool) -> None:
        """End an attempt that failed; `every` and a chain that was never matched start anew."""
        self._tokens.drop(token)
        new = None
        if self._starts_at_each and token.pos == 0:
            least = self._a.stages[0].least if isinstance(self._a.stages[0], Accept) else 0
            self._broken_at_start |= again and token.first is not None and token.count >= least > 0
        elif token.scope >= 0 and (again or self._a.scopes[token.scope][0] == 0):
            new = self._start_scope(token, token.scope, time)
        new = self._restart(token.key, time) or new
        if new is not None and self._a.strict and again and token.first is not None:
            self._reborn.append(new)


def _wait_us(stage: Stage) -> int | None:
    return next((side.wait_us for side in sides(stage) if isinstance(side, Absence)), None)
