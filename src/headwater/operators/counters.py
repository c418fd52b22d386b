"""What one instance of a step has done so far: records, times, and how old records were when a sink took them."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import CREATED, EMITTED
from headwater.data.column import Array
from headwater.data.jit import COMPILED, answering_at_once
from headwater.histogram import Histogram
from headwater.metrics import StepMetrics, bucket_of
from headwater.operators.kernels.ages import ages_at_once, tallied_ages
from headwater.operators.queue import QueueEntry


class Latencies:
    """How old records were when a sink took them: since they were created, and since their source emitted them.

    Stamps are kept and counted many at a time: putting a few into a histogram costs as much as putting in thousands. But no
    more than that: while a million are counted, all records behind them wait.
    Where batches come faster than any person needs to know, every sixteenth one stands for the others. Whoever asks may do
    so from another thread than the one that writes.
    """

    def __init__(self) -> None:
        self._created, self._emitted = Histogram(), Histogram()
        self._pending: list[tuple[int, Array]] = []
        self.pending = 0  #: stamps that are not counted yet
        self._batches = 0
        self._every = 1
        self._looked = 0  #: batches that were looked at since it was last decided how many are
        self._decided_ns = now_ns()
        self._counting = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock behind: tasks are sent to Spark's workers before they run."""
        return {name: value for name, value in vars(self).items() if name != "_counting"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._counting = Lock()

    def arrived(self, stamps: Array) -> None:
        """Take note of records that a sink has just taken."""
        self._batches += 1
        if self._batches % self._every:
            return
        with self._counting:
            now = now_ns()
            self._pending.append((now, stamps))
            self.pending += len(stamps)
            self._looked += 1
            if self._looked == _LOOKS:
                fast = now - self._decided_ns < _LOOKS * self._every * _RARELY_NS
                self._count()
                self._every, self._looked, self._decided_ns = 16 if fast else 1, 0, now
            elif self.pending >= _ENOUGH:
                self._count()

    def histograms(self) -> tuple[Histogram, Histogram]:
        """Return the latencies since creation and since emission, all counted."""
        with self._counting:
            self._count()
        return self._created, self._emitted

    def _count(self) -> None:
        pending, self._pending = self._pending, []
        if not self.pending:
            return
        stamps = np.concatenate([stamps for _, stamps in pending])
        ends = np.cumsum([len(stamps) for _, stamps in pending])
        arrived = np.array([at for at, _ in pending])
        self.pending = 0
        tally = tallied_ages if COMPILED and len(stamps) >= _MANY else ages_at_once
        with answering_at_once():  # who asks for a sample waits for no compiler
            tallies = tally(stamps, ends, arrived)
        self._created.add_tally(tallies[CREATED], self._every)
        self._emitted.add_tally(tallies[EMITTED], self._every)


#: A sink that is given batches more often than this is sampled; that is decided by so many of them.
_RARELY_NS = 200_000
_LOOKS = 128
#: Stamps that are counted together: what that takes fits a processor's own memory. A million take five times as long each,
#: and tens of milliseconds in all.
_ENOUGH = 2**14
#: From so many on they are counted by a kernel: a flow of a few records needs no compiler.
_MANY = 2**12


class Counters:
    """What an instance has done so far."""

    __slots__ = (
        "activations",
        "busy_ns",
        "dead",
        "empty_since_ns",
        "last_finish_ns",
        "late",
        "records_in",
        "records_out",
        "retries",
        "shed",
        "sides",
        "started_ns",
        "t_c_ns",
        "t_empty_ns",
        "t_q_ns",
        "t_s_ns",
        "times",
    )

    def __init__(self, now_ns: int) -> None:
        self.started_ns = now_ns
        self.empty_since_ns = now_ns  #: since when there was nothing to do; 0 when there is something
        self.last_finish_ns = 0
        self.records_in = self.records_out = self.activations = self.dead = self.shed = self.late = self.retries = 0
        self.sides: dict[int, int] = {}  #: records by the number of the output, but for the main one
        self.t_q_ns = self.t_s_ns = self.t_c_ns = self.t_empty_ns = self.busy_ns = 0
        self.times: dict[int, int] = {}  #: how long records were here, by bucket

    def activated(self, entries: list[QueueEntry], start_ns: int, now_ns: int) -> None:
        """Count the time of one activation in.

        A record's wait is split where it came to the head of the queue: before that it waited behind others (T_Q), after
        that for a worker (T_S). Its compute time T_C is that of the batch it was in, since it leaves with the batch.
        """
        records = t_s_ns = t_q_ns = 0
        before, times = self.last_finish_ns, self.times
        for _, batch, _, put_ns, size, _, _ in entries:
            if batch is not None:
                head_ns = before if before > put_ns else put_ns
                t_s_ns += (start_ns - head_ns) * size
                t_q_ns += (head_ns - put_ns) * size
                bucket = bucket_of(now_ns - put_ns)
                times[bucket] = times.get(bucket, 0) + size
                records += size
        self.activations += 1
        self.t_s_ns += t_s_ns
        self.t_q_ns += t_q_ns
        self.busy_ns += now_ns - start_ns
        self.t_c_ns += (now_ns - start_ns) * records

    def inlined(self, elapsed_ns: int, records: int, times: int) -> None:
        """Count compute time that passed without the records ever being in the queue; it stands for so many of them."""
        bucket = bucket_of(elapsed_ns)
        self.times[bucket] = self.times.get(bucket, 0) + records * times
        elapsed_ns *= times
        self.busy_ns += elapsed_ns
        self.t_c_ns += elapsed_ns * records
        self.t_empty_ns -= elapsed_ns

    def by_output(self, ports: list[str], late: tuple[int, ...]) -> dict[str, int]:
        """Return the records of each output by name, those of the `late` ones included; nothing if there is only one."""
        if len(ports) < 2:
            return {}
        sides = {port: self.sides.get(number, 0) for number, port in enumerate(ports) if number}
        on_sides = sum(count for number, count in self.sides.items() if number not in late)
        return {ports[0]: self.records_out - on_sides, **sides}

    def metrics(self, name: str, now_ns: int) -> StepMetrics:
        """Return the counters as they are now."""
        empty_ns = self.t_empty_ns + (max(0, now_ns - self.empty_since_ns) if self.empty_since_ns else 0)
        return StepMetrics(
            name=name,
            records_in=self.records_in,
            records_out=self.records_out,
            activations=self.activations,
            t_q_ns=self.t_q_ns,
            t_s_ns=self.t_s_ns,
            t_c_ns=self.t_c_ns,
            busy_ns=self.busy_ns,
            t_empty_ns=empty_ns,
            span_ns=now_ns - self.started_ns,
            dead_letters=self.dead,
            shed=self.shed,
            late=self.late,
            retries=self.retries,
            times=self.times.copy(),
        )
