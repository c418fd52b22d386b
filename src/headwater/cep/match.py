"""The step that matches a chain: records in, one result per match out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton, label
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
from headwater.operators.keyed import combine, with_letters
from headwater.operators.keys import IdleKeys, keys_batch, select_slots
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.projection import Projection
from headwater.operators.snapshot import pack_state, unpack_state

DEFAULT_CAP = 100_000  #: partial matches that a query keeps unless told otherwise

_KIND = "match"


@dataclass(frozen=True)
class MatchPlan:
    """Everything a match step needs to know."""

    automaton: Automaton
    attributes: tuple[s.Attribute, ...]  #: what the result reads of the events
    projection: Projection
    times: tuple[str | None, ...]
    keys: tuple[tuple[str, ...], ...]
    step: str
    cap: int = DEFAULT_CAP
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

    @property
    def keeps(self) -> str:
        """What saved state is about: partial matches, and what they remember."""
        return f"{self.automaton} keeping {', '.join(label(attribute) for attribute in self.attributes) or 'nothing'}"


class MatchOperator(Operator):
    """Runs a chain over its streams; the shape of the chain decides which matcher does it."""

    stateless = False

    def __init__(self, plan: MatchPlan) -> None:
        self._plan = plan
        a = plan.automaton
        self._arrivals = Arrivals(a.schemas, plan.times, plan.keys, plan.step, own_reads(a))
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
        chunk, clock = self._arrivals.release(watermark)
        out, letters = self._run(chunk) if chunk is not None else (None, None)
        if clock > NO_WATERMARK:
            late, more = self._results(self._matcher.advance(min(clock, FOREVER)))
            out, letters = combine(out, late), combine(letters, more)
        return with_letters(out, letters)

    def _run(self, chunk: Chunk) -> tuple[Batch | None, Batch | None]:
        self._matcher.reserve(len(self._arrivals.keys))
        matches = self._matcher.process(chunk)
        if not self._arrivals.by_key:
            matches += self._matcher.advance(int(chunk.times[-1]))
        out, letters = self._results(matches)
        self._forget_idle_keys()
        return out, letters

    def _results(self, matches: list[Batch]) -> tuple[Batch | None, Batch | None]:
        """Return the results of matches, and dead letters for what could not be computed on the way."""
        out, letters = self._select.run(concat_batches(matches)) if matches else (None, None)
        if isinstance(self._matcher, Interpreter):
            letters = combine(letters, self._matcher.unfit(self._plan.step))
        return out, letters

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the partial matches of the chosen keys, and the records of theirs that wait for their turn."""
        keys = self._arrivals.keys
        slots = select_slots(keys, select)
        if not self._arrivals.to_all:
            slots = slots[self._matcher.holding()[slots]]
        state = {
            "count": len(slots),
            "keys": keys.columns(slots),
            "arrivals": self._arrivals.save(select),
            "matcher": self._matcher.save(slots),
            "evicted": self.evicted if select is None else 0,
        }
        return pack_state(_KIND, state)

    def restore(self, data: bytes) -> None:
        """Accept over partial matches."""
        state = unpack_state(_KIND, data)
        self._evicted += state["evicted"]
        if state["count"]:
            slots = self._arrivals.keys.slots_of(keys_batch(state["keys"], state["count"]))
            self._matcher.reserve(len(self._arrivals.keys))
            self._matcher.load(state["matcher"], slots)
        self._arrivals.load(state["arrivals"])
        self._matcher.reserve(len(self._arrivals.keys))

    def forget(self, select: Select) -> None:
        """Drop the partial matches of the chosen keys."""
        mask = np.zeros(len(self._arrivals.keys), np.bool_)
        mask[select_slots(self._arrivals.keys, select)] = True
        self._arrivals.forget(select)
        self._keep(np.flatnonzero(~mask))

    def _forget_idle_keys(self) -> None:
        """Forget keys that hold nothing and whose time others have reached, once they may be the greater part."""
        key_count = len(self._arrivals.keys)
        if self.idle_keys.may_be_many(key_count) and not self._arrivals.to_all:
            slots = np.flatnonzero(self._matcher.holding()[:key_count] | self._arrivals.ahead())
            self._keep(slots)
            self.idle_keys.note(key_count, len(slots))

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
            return PatternMatcher(a, tables, plan.attributes, plan.cap, by_key=by_key)
        if tables is not None and len(a.stages) <= plan.cap + 1:  # of a sequence, a key has fewer attempts than stages
            return SequenceMatcher(a, tables, plan.attributes)
        layout = Layout.of(a, plan.attributes)
        several = nfa(a, layout) if layout is not None else None
        if layout is not None and several is not None:
            return NfaMatcher(a, several, layout, plan.attributes, plan.cap)
    return Interpreter(a, plan.attributes, plan.cap)
