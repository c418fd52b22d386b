"""The step that matches a chain: records in, one result per match out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton
from headwater.cep.matchers.comparison import comparisons
from headwater.cep.matchers.compiled import own_reads
from headwater.cep.matchers.interpreter import FOREVER, Interpreter
from headwater.cep.matchers.nfa import Layout, NfaMatcher, nfa
from headwater.cep.matchers.pattern import PatternMatcher
from headwater.cep.matchers.sequence import SequenceMatcher
from headwater.data.batch import NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array
from headwater.operators.arrivals import Arrivals
from headwater.operators.chunk import Chunk
from headwater.operators.keyed import joined, with_letters
from headwater.operators.keys import IdleKeys, chosen_slots, keys_batch
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.projection import Projection
from headwater.operators.snapshot import packed, unpacked

DEFAULT_CAP = 100_000  #: partial matches that a query keeps unless told otherwise

_KIND = "match"


@dataclass(frozen=True)
class MatchPlan:
    """Everything a match step needs to know."""

    automaton: Automaton
    wanted: tuple[s.Attribute, ...]  #: what the result reads of the events
    projection: Projection
    times: tuple[str | None, ...]
    keys: tuple[tuple[str, ...], ...]
    step: str
    cap: int = DEFAULT_CAP
    lag_us: int = 0  #: of the streams, behind the watermark
    result_time: str | None = None  #: the column of the results' event time
    delay_us: int = 0  #: how far that lies behind the watermark when they come
    interpreted: bool = False  #: run even a chain that could be compiled by the interpreter

    def __call__(self) -> MatchOperator:
        """Make a new operator."""
        return MatchOperator(self)

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        kind = "sequence" if self.automaton.strict else "pattern"
        return f"{kind} of {len(self.automaton.stages)}"


class MatchOperator(Operator):
    """Runs a chain over its streams; the shape of the chain decides which matcher does it."""

    stateless = False

    def __init__(self, plan: MatchPlan) -> None:
        self._plan = plan
        a = plan.automaton
        self._arrivals = Arrivals(a.schemas, plan.times, plan.keys, plan.step, own_reads(a), plan.lag_us)
        self._select = plan.projection.runner(plan.step)
        self._matcher = _matcher(plan, by_key=self._arrivals.by_key)
        self._evicted = 0  #: by matchers before this one
        self.idle_keys = IdleKeys()  #: those that hold nothing

    @property
    def partial_matches(self) -> int:
        """How many partial matches there are now."""
        return self._matcher.live

    @property
    def evicted(self) -> int:
        """How many partial matches the cap has cost so far."""
        return self._evicted + self._matcher.evicted

    @property
    def nbytes(self) -> int:
        """Bytes of all state: partial matches, the records they hold, records that wait for their turn, keys."""
        return self._matcher.nbytes + self._arrivals.nbytes

    def process(self, batch: Batch, port: int) -> Output:
        """Return the results of the matches that these records complete."""
        return with_letters(*self._arrivals.through(batch, port, self._run))

    def advance(self, watermark: int) -> Output:
        """Accept records that waited for their turn, and let time pass."""
        chunk, reached = self._arrivals.release(watermark)
        out, letters = self._run(chunk) if chunk is not None else (None, None)
        if reached > NO_WATERMARK:
            late, more = self._results(self._matcher.advance(min(reached, FOREVER)))
            out, letters = joined(out, late), joined(letters, more)
        return with_letters(out, letters)

    def _run(self, chunk: Chunk) -> tuple[Batch | None, Batch | None]:
        self._matcher.reserve(len(self._arrivals.keys))
        found = self._matcher.process(chunk)
        if not self._arrivals.by_key:
            found += self._matcher.advance(int(chunk.times[-1]))
        out, letters = self._results(found)
        self._forget_idle_keys()
        return out, letters

    def _results(self, found: list[Batch]) -> tuple[Batch | None, Batch | None]:
        """Return the results of matches, and dead letters for what could not be computed on the way."""
        out, letters = self._select.run(concat_batches(found)) if found else (None, None)
        if isinstance(self._matcher, Interpreter):
            letters = joined(letters, self._matcher.unfit(self._plan.step))
        return out, letters

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the partial matches of the chosen keys, and the records of theirs that wait for their turn."""
        keys = self._arrivals.keys
        slots = chosen_slots(keys, select)
        if not self._arrivals.to_all:
            slots = slots[self._matcher.holding()[slots]]
        state = {
            "count": len(slots),
            "keys": keys.columns(slots),
            "arrivals": self._arrivals.save(select),
            "matcher": self._matcher.save(slots),
            "evicted": self.evicted if select is None else 0,
        }
        return packed(_KIND, state)

    def restore(self, data: bytes) -> None:
        """Accept over partial matches."""
        saved = unpacked(_KIND, data)
        self._evicted += saved["evicted"]
        if saved["count"]:
            slots = self._arrivals.keys.slots_of(keys_batch(saved["keys"], saved["count"]))
            self._matcher.reserve(len(self._arrivals.keys))
            self._matcher.load(saved["matcher"], slots)
        self._arrivals.load(saved["arrivals"])
        self._matcher.reserve(len(self._arrivals.keys))

    def forget(self, select: Select) -> None:
        """Drop the partial matches of the chosen keys."""
        gone = np.zeros(len(self._arrivals.keys), np.bool_)
        gone[chosen_slots(self._arrivals.keys, select)] = True
        self._arrivals.forget(select)
        self._keep(np.flatnonzero(~gone))

    def _forget_idle_keys(self) -> None:
        """Forget keys that hold nothing and whose time others have reached, once they may be the greater part."""
        known = len(self._arrivals.keys)
        if self.idle_keys.may_be_many(known) and not self._arrivals.to_all:
            stay = np.flatnonzero(self._matcher.holding()[:known] | self._arrivals.ahead())
            self._keep(stay)
            self.idle_keys.note(known, len(stay))

    def _keep(self, slots: Array) -> None:
        """Start over with these keys alone."""
        state = self._matcher.save(slots)
        self._evicted = self.evicted
        self._matcher = _matcher(self._plan, by_key=self._arrivals.by_key)
        self._arrivals.keep(slots)
        self._matcher.reserve(len(slots))
        self._matcher.load(state, np.arange(len(slots)))


def _matcher(plan: MatchPlan, *, by_key: bool) -> Interpreter | SequenceMatcher | PatternMatcher | NfaMatcher:
    """Return the fastest matcher that can run the chain."""
    a = plan.automaton
    if not plan.interpreted:
        tables = comparisons(a)
        if tables is not None and not a.strict:
            return PatternMatcher(a, tables, plan.wanted, plan.cap, by_key=by_key)
        if tables is not None and len(a.stages) <= plan.cap + 1:  # of a sequence, a key has fewer attempts than stages
            return SequenceMatcher(a, tables, plan.wanted)
        layout = Layout.of(a, plan.wanted)
        several = nfa(a, layout) if layout is not None else None
        if layout is not None and several is not None:
            return NfaMatcher(a, several, layout, plan.wanted, plan.cap)
    return Interpreter(a, plan.wanted, plan.cap)
