"""Where attempts wait: each for the next record at its stage, for the end of a wait, or to grow too old."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

from headwater.cep.automaton import Accept, Automaton, Stage, first_places
from headwater.cep.matchers.conditions import Bindings, Conditions, Record

NEVER = 2**63 - 1


class Token:
    """One attempt: where it is and what it has taken."""

    __slots__ = ("came", "count", "deadline", "first", "key", "passed", "pos", "scope", "seq", "taken", "waits")

    def __init__(self, seq: int, key: int, pos: int, bindings: Bindings, first: int | None) -> None:
        self.seq, self.key, self.pos, self.taken, self.first = seq, key, pos, bindings, first
        self.scope = -1  #: the stretch it must get through before `every` starts anew, -1 for none
        self.count = 0  #: records taken at this stage; at a pair, 1 and 2 stand for the sides
        self.passed = False  #: whether an absence beside `and` has been waited out
        self.came = 0  #: its turn among all that came to their stages
        self.deadline = NEVER
        self.waits: list[int] = []  #: at a sequence, the stages where it waits


class ShownRecord(NamedTuple):
    """A record that attempts are shown: the sides, by identity, that it suits by its own values, and when it came."""

    sides: set[int]
    record: Record
    time: int


class Tokens:
    """All attempts of all keys: who waits where, and whose time comes next."""

    def __init__(self, automaton: Automaton, conditions: Conditions) -> None:
        self._a, self._equal = automaton, conditions.equal
        self._first_places = first_places(automaton.stages)
        self._by_age: dict[int, Token] = {}
        self._waiting: dict[Any, dict[int, Token]] = {}  #: (key, stage[, value]) → token by its turn
        self._in_place: dict[tuple[int, int], Token] = {}  #: who waits at which place of a key's sequence
        self._deadlines: dict[int, list[tuple[int, int]]] = {}  #: by key, as each has a time of its own
        self._starts: dict[int, list[tuple[int, int]]] = {}
        self._keys: dict[int, int] = {}  #: key → tokens it has
        self.started: dict[int, Token] = {}  #: those that have taken something, by the age of what they took first
        self.seq = 0  #: of the youngest, or of who came to a stage last

    def __iter__(self) -> Iterator[Token]:
        return iter(self._by_age.values())

    def __len__(self) -> int:
        return len(self._by_age)

    def __contains__(self, token: Token) -> bool:
        return token.seq in self._by_age

    def has_any(self, key: int) -> bool:
        """Say whether a key has an attempt."""
        return key in self._keys

    def is_first_place_free(self, key: int) -> bool:
        """Say whether nothing waits at the first place of a key's sequence."""
        return (key, 0) not in self._in_place

    # -- how they begin and end ---------------------------------------------------------------------------------------

    def new(self, key: int, pos: int, bindings: Bindings) -> Token:
        """Return an attempt that is younger than all others."""
        self.seq += 1
        return Token(self.seq, key, pos, bindings, None)

    def add(self, token: Token, first: int | None) -> None:
        """Add an attempt, with the time of the first record that it has taken."""
        self._by_age[token.seq] = token
        self._keys[token.key] = self._keys.get(token.key, 0) + 1
        if first is not None:
            self.begin(token, first)

    def begin(self, token: Token, first: int) -> None:
        """Take note that an attempt has taken its first record."""
        token.first = first
        self.started[token.seq] = token
        if self._a.within_us is not None:
            heapq.heappush(self._starts.setdefault(token.key, []), (first, token.seq))

    def drop(self, token: Token) -> None:
        """Forget an attempt."""
        self.leave(token)
        if self._by_age.pop(token.seq, None) is None:
            return
        self.started.pop(token.seq, None)
        self._keys[token.key] -= 1
        if not self._keys[token.key]:
            del self._keys[token.key]

    # -- time ---------------------------------------------------------------------------------------------------------

    def expect(self, token: Token, deadline: int) -> None:
        """Have an attempt's wait end at a moment."""
        token.deadline = deadline
        heapq.heappush(self._deadlines.setdefault(token.key, []), (deadline, token.seq))

    def timed_keys(self) -> list[int]:
        """Return the keys for which the passing of time may mean something."""
        for waits in (self._deadlines, self._starts):
            for key in [key for key, heap in waits.items() if not heap]:
                del waits[key]
        return sorted({*self._deadlines, *self._starts})

    def due(self, key: int, clock: int) -> tuple[Token, int, bool] | None:
        """Return whose time of a key comes next, until a moment: when, and whether it is too old then; None for nobody's."""
        within = self._a.within_us
        while True:
            deadlines, starts = self._deadlines.get(key), self._starts.get(key)
            deadline = deadlines[0][0] if deadlines else NEVER
            too_old = starts[0][0] + within + 1 if starts and within is not None else NEVER
            if min(deadline, too_old) > clock:
                return None
            if starts and too_old <= deadline:
                first, seq = heapq.heappop(starts)
                token = self._by_age.get(seq)
                if token is not None and token.first == first:
                    return token, too_old, True
            else:
                assert deadlines is not None
                _, seq = heapq.heappop(deadlines)
                token = self._by_age.get(seq)
                if token is not None and token.deadline == deadline:
                    return token, deadline, False

    # -- where they wait ----------------------------------------------------------------------------------------------

    def come(self, token: Token) -> None:
        """Put an attempt behind all others; of a pattern, one whose count has enough has come to what follows."""
        self.seq += 1
        token.came = self.seq

    def candidates(self, key: int, event: ShownRecord) -> list[Token]:
        """Return the attempts of a key that a record may move, in the order in which they came to their stages."""
        tokens: list[Token] = []
        for pos, equal in enumerate(self._equal):
            if equal is None:
                tokens += self._waiting.get((key, pos), {}).values()
            elif id(self._a.stages[pos]) in event.sides:
                tokens += self._waiting.get((key, pos, equal[0](({}, event.record))), {}).values()
        return sorted(tokens, key=lambda token: token.came)

    def stages_after(self, token: Token) -> list[int]:
        """Return the later stages that could take an attempt's next record."""
        stages, positions = self._a.stages, []
        stage = stages[token.pos]
        if isinstance(stage, Accept) and token.count >= stage.least:
            for pos in range(token.pos + 1, len(stages)):
                positions.append(pos)
                if not optional(stages[pos]):
                    break
        return positions

    def stay(self, token: Token) -> None:
        """Let an attempt wait; at a sequence, at the stages that could take its next record and where nobody does yet."""
        if self._a.strict:
            stage, positions = self._a.stages[token.pos], self.stages_after(token)
            if not isinstance(stage, Accept) or stage.most is None or token.count < stage.most:
                positions.insert(0, token.pos)
            token.waits = [pos for pos in positions if self._place(token, pos) not in self._in_place]
            if not token.waits:
                return
        self.wait(token)

    def wait(self, token: Token) -> None:
        """Let an attempt wait where it says."""
        for pos in token.waits:
            self._in_place[self._place(token, pos)] = token
        self._waiting.setdefault(self._waits_at(token), {})[token.came] = token

    def leave(self, token: Token) -> None:
        """Let an attempt wait nowhere."""
        self.leave_places(token)
        at = self._waits_at(token)
        waiting = self._waiting.get(at)
        if waiting and waiting.pop(token.came, None) is not None and not waiting:
            del self._waiting[at]

    def leave_places(self, token: Token) -> None:
        """Free the places of a sequence where an attempt waits."""
        for place in [self._place(token, pos) for pos in token.waits]:
            if self._in_place.get(place) is token:
                del self._in_place[place]

    def _waits_at(self, token: Token) -> Any:
        equal = self._equal[token.pos]
        return (token.key, token.pos) if equal is None else (token.key, token.pos, equal[1]((token.taken, {})))

    def _place(self, token: Token, pos: int) -> tuple[int, int]:
        stage = self._a.stages[pos]
        inner = 0
        if pos == token.pos:
            if not isinstance(stage, Accept) or token.count < stage.least:
                inner = token.count
            elif pos == 0 and stage.least == 0:
                inner = min(token.count, 1)
        return token.key, self._first_places[pos] + inner


def optional(stage: Stage) -> bool:
    """Say whether a chain may go on without a record for a stage."""
    return isinstance(stage, Accept) and stage.least == 0
