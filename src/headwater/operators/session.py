"""Session windows: they last as long as records of a key follow each other within a gap."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.column import Array, Column, column_of
from headwater.data.schema import Schema
from headwater.flow.steps import WindowAggregate
from headwater.flow.windows import Session
from headwater.operators.accumulate import Accumulators
from headwater.operators.keyed import combine
from headwater.operators.operator import DEAD, Operator, Output, Select, compute_or_reject, dead_letters
from headwater.operators.progress import split_off
from headwater.operators.snapshot import pack_state, unpack_state
from headwater.operators.time_window import LATE

Key = tuple[Any, ...]


class SessionOperator(Operator):
    """Aggregates by key and session; a record between two sessions joins them into one."""

    stateless = False
    late = (LATE,)

    def __init__(self, kind: WindowAggregate, step: str, schema: Schema) -> None:
        assert isinstance(kind.window, Session)
        assert kind.time is not None
        self._gap, self._step, self._names, self._time = kind.window.gap_us, step, kind.keys, kind.time
        self._schema = schema
        self._sums = Accumulators(kind.aggregates, schema)
        self._open: dict[Key, list[_Session]] = {}
        self._deadlines: list[tuple[int, int, Key]] = []  #: heap of (end + gap, number, key); may be out of date
        self._free: list[int] = []
        self._groups = 0
        self._watermark = NO_WATERMARK

    def process(self, batch: Batch, port: int) -> Output:
        """Take records into their sessions; one too old for any open session is late."""
        batch, letters = split_off(batch, self._names, self._time, self._step)
        batch, inputs, more = compute_or_reject(self._sums.inputs, batch, self._step)
        letters = combine(letters, more)
        times: list[Any] = batch.columns[self._time].tolist()
        keys: list[Key] = list(zip(*(batch.columns[name].tolist() for name in self._names), strict=True))
        sessions = [self._session(keys[i] if keys else (), at, batch.stamps[i]) for i, at in enumerate(times)]
        rows = np.array([i for i, session in enumerate(sessions) if session is not None], np.int64)
        slots = np.array([session.final().slot for session in sessions if session is not None], np.int64)
        entered = batch if len(rows) == batch.length else batch.take(rows)
        if entered.length:
            inputs = [None if column is None else column[rows] for column in inputs]
            self._sums.update(slots, inputs, self._sums.arrived(entered.length))
        outputs: list[tuple[int, Batch]] = [] if letters is None else [(DEAD, letters)]
        if len(rows) < batch.length:
            outputs.append((LATE, batch.take(np.setdiff1d(np.arange(batch.length), rows))))
        return outputs or None

    def _session(self, key: Key, at: int, stamps: Array) -> _Session | None:
        """Return the open session that a record joins, or a new one, or None when it is late."""
        sessions = self._open.get(key, [])
        near = [s for s in sessions if s.start - self._gap < at < s.end + self._gap]
        if not near:
            if at + self._gap <= self._watermark:
                return None
            session = _Session(at, at, self._slot())
            self._open.setdefault(key, []).append(session)
        else:
            session = near[0]
            for other in near[1:]:
                self._absorb(session, other)
                sessions.remove(other)
            session.start, session.end = min(session.start, at), max(session.end, at)
        session.stamps = stamps
        heapq.heappush(self._deadlines, (session.end + self._gap, session.slot, key))
        return session

    def _absorb(self, into: _Session, other: _Session) -> None:
        self._sums.merge(np.array([into.slot]), self._sums, np.array([other.slot]))
        into.start, into.end = min(into.start, other.start), max(into.end, other.end)
        other.absorbed = into
        self._release([other.slot])

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._groups += 1
        self._sums.reserve(self._groups)
        return self._groups - 1

    def _release(self, slots: list[int]) -> None:
        self._sums.reset(np.array(slots))
        self._free += slots

    def advance(self, watermark: int) -> Output:
        """Close the sessions that no record can join any more.

        At the end of all sources all are closed, and time stays where the last of them ends: a later run may bring what was
        not there yet.
        """
        closed: list[tuple[Key, _Session]] = []
        while self._deadlines and self._deadlines[0][0] <= watermark:
            deadline, slot, key = heapq.heappop(self._deadlines)
            for session in self._open.get(key, []):
                if session.slot == slot and session.end + self._gap == deadline:
                    closed.append((key, session))
                    self._open[key].remove(session)
                    if not self._open[key]:
                        del self._open[key]
                    break
        ended_us = max((session.end + self._gap for _, session in closed), default=NO_WATERMARK)
        self._watermark = max(self._watermark, watermark if watermark < END else ended_us)
        return self._results(closed) if closed else None

    def _results(self, closed: list[tuple[Key, _Session]]) -> Output:
        slots = np.array([session.slot for _, session in closed])
        columns: dict[str, Column] = {
            name: column_of([key[i] for key, _ in closed], self._schema[name], name=name)
            for i, name in enumerate(self._names)
        }
        columns["start"] = np.array([session.start for _, session in closed])
        columns["end"] = np.array([session.end + self._gap for _, session in closed])
        columns |= self._sums.results(slots)
        broken = self._sums.broken()
        out = Batch(columns, len(closed), np.array([session.stamps for _, session in closed]).reshape(-1, 2))
        self._release(slots.tolist())
        if not broken:
            return out
        bad = out.take(np.array([row for row, _ in broken]))
        return [(0, out), (DEAD, dead_letters(self._step, [why for _, why in broken], bad))]

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the open sessions of the chosen keys."""
        entries = [(key, session) for key in self._select_keys(select) for session in self._open[key]]
        slots = np.array([session.slot for _, session in entries], np.int64)
        state = {
            "watermark": self._watermark,
            "keys": [list(key) for key, _ in entries],
            "spans": [[session.start, session.end] for _, session in entries],
            "stamps": [list(map(int, session.stamps)) for _, session in entries],
            "sums": self._sums.save(slots),
        }
        return pack_state("session window", state)

    def restore(self, data: bytes) -> None:
        """Take over open sessions."""
        state = unpack_state("session window", data)
        self._watermark = max(self._watermark, state["watermark"])
        slots = np.array([self._slot() for _ in state["keys"]], np.int64)
        self._sums.load(slots, state["sums"])
        entries = zip(state["keys"], state["spans"], state["stamps"], slots.tolist(), strict=True)
        for parts, (start, end), stamps, slot in entries:
            key = tuple(parts)
            session = _Session(start, end, slot)
            session.stamps = np.array(stamps, np.int64)
            self._open.setdefault(key, []).append(session)
            heapq.heappush(self._deadlines, (end + self._gap, slot, key))

    def forget(self, select: Select) -> None:
        """Drop the sessions of the chosen keys."""
        for key in self._select_keys(select):
            self._release([session.slot for session in self._open.pop(key)])

    def _select_keys(self, select: Select | None) -> list[Key]:
        keys = list(self._open)
        if select is None or not keys or not self._names:
            return keys
        columns = [
            column_of([key[i] for key in keys], self._schema[name], name=name) for i, name in enumerate(self._names)
        ]
        return [key for key, inside in zip(keys, select.rows(columns).tolist(), strict=True) if inside]  # type: ignore[arg-type]


class _Session:
    """An open session: first and last record, and its group among the accumulators."""

    __slots__ = ("absorbed", "end", "slot", "stamps", "start")

    def __init__(self, start: int, end: int, slot: int) -> None:
        self.start, self.end, self.slot = start, end, slot
        self.stamps: Array = np.zeros(2, np.int64)
        self.absorbed: _Session | None = None

    def final(self) -> _Session:
        """Return the session that this one has become part of."""
        session = self
        while session.absorbed is not None:
            session = session.absorbed
        return session
