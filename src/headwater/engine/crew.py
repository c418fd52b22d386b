"""How many workers are worth having at once: learned, because Python's own lock makes some work slower with company.

Steps that compute in long kernels or wait for the network run side by side. Steps made of many short calls do not: workers
then hand the interpreter's lock to and fro, thousands of times a second and each time on a core with cold caches, and two
of them get less done than one. Which it is depends on the flow, the batch sizes and the machine, and it shows in the share
of a turn that a worker can compute: alone nearly all of it, in bad company half, the rest is waiting for the lock. So
the crew keeps that share for each number of workers at once, sends one to rest if it is no use, and tries later again.

A worker may compute most of its turn and still be no use: company also makes batches smaller, and caches colder. Where
the share leaves doubt and there is more to do than anyone can do, what gets done tells; so then one fewer is tried.
"""

from __future__ import annotations

EVERY_NS = 20_000_000  #: how often the crew takes stock
_ENOUGH_NS = 10_000_000  #: turns that must have been seen for a judgement
_FIRST_REST_NS = 1_000_000_000  #: how long a smaller crew stands before one more is tried; doubled after each failure
_LONGEST_REST_NS = 16_000_000_000
_GAIN, _SURE = 0.35, 0.8  #: of what one worker gets done alone, that a further one must add, and that leaves no doubt
_SPAN_NS = 100_000_000  #: how long records are counted for a comparison
_AS_GOOD = 0.95  #: of what the whole crew gets done, with which one fewer is preferred


class Crew:
    """Decides the number of workers from how their turns go; told of time, it has no clock of its own."""

    def __init__(self, most: int) -> None:
        self.size = most
        self.due_ns = 0  #: when `look` wants to be called next
        self._most = most
        self._wall_ns = [0] * (most + 1)  #: by the number of workers at work: turns seen since the last judgement
        self._able_ns = [0] * (most + 1)  #: and the part of it that they were able to compute
        self._share: list[float | None] = [None] * (most + 1)
        self._try_ns = 0  #: when one more worker is tried
        self._rest_ns = _FIRST_REST_NS
        self._compare_ns = 0  #: when one fewer is tried
        self._stay_ns = _FIRST_REST_NS  #: how long the whole crew stands before that; doubled after each failure
        self._span: tuple[int, int, int] | None = (
            None  #: a count under way: since when, from how many records, by how many
        )
        self._rival: tuple[int, float] | None = None  #: the crew that one fewer is compared with, and what it got done

    def turned(self, company: int, wall_ns: int, able_ns: int) -> None:
        """Take note of a turn: how many workers were at work, how long it took, how much of it the worker could compute."""
        self._wall_ns[company] += wall_ns
        self._able_ns[company] += able_ns

    def look(self, now_ns: int, done: int | None = None) -> None:
        """Take stock, and let one worker go or call one more.

        `done` is how many records were processed so far; None if since the last time somebody had nothing to do.
        """
        self.due_ns = now_ns + EVERY_NS
        judged = self._wall_ns[self.size] >= _ENOUGH_NS
        for company, wall_ns in enumerate(self._wall_ns):
            if wall_ns >= _ENOUGH_NS:
                self._share[company] = self._able_ns[company] / wall_ns
                self._wall_ns[company] = self._able_ns[company] = 0
        if judged and self.size > 1 and self._gain() < _GAIN:
            self._rival = self._span = None
            self._rest_one(now_ns)
        elif self.size < self._most and now_ns >= self._try_ns and self._rival is None:
            self.size += 1
            self._compare_ns = now_ns
        elif judged and self.size > 1 and done is None:
            self._rest_ns = _FIRST_REST_NS
        self._compare(now_ns, done)

    def _rest_one(self, now_ns: int) -> None:
        self._share[self.size] = None
        self.size -= 1
        self._stand(now_ns)

    def _stand(self, now_ns: int) -> None:
        """Let a smaller crew stand for a while."""
        self._try_ns = now_ns + self._rest_ns
        self._rest_ns = min(2 * self._rest_ns, _LONGEST_REST_NS)

    def _compare(self, now_ns: int, done: int | None) -> None:
        """Count what gets done; from time to time see whether one fewer gets as much done, and keep the better crew."""
        if done is None:
            self._span = None
            if self._rival is not None:  # one fewer is enough for now: there is a worker to spare
                self._rival = None
                self._stand(now_ns)
            return
        if self._span is None or self._span[2] != self.size:
            self._span = now_ns, done, self.size
            return
        since_ns, before, _ = self._span
        if now_ns - since_ns < _SPAN_NS:
            return
        rate = (done - before) / (now_ns - since_ns)
        self._span = now_ns, done, self.size
        if self._rival is None:
            if self.size > 1 and now_ns >= self._compare_ns and self._gain() < _SURE:
                self._rival = self.size, rate
                self.size -= 1
            return
        crew, its_rate = self._rival
        self._rival = None
        if rate >= _AS_GOOD * its_rate:
            self._stay_ns = _FIRST_REST_NS
            self._stand(now_ns)
        else:
            self.size = crew
            self._rest_ns = _FIRST_REST_NS
            self._compare_ns = now_ns + self._stay_ns
            self._stay_ns = min(2 * self._stay_ns, _LONGEST_REST_NS)

    def _gain(self) -> float:
        """Return how much more the whole crew gets done than one fewer would, in units of one alone, by their shares."""
        alone, all_but_one, everyone = self._share[1], self._share[self.size - 1], self._share[self.size]
        # what was never seen is taken for the best, so that it is tried
        alone = 1.0 if alone is None else alone
        all_but_one = 1.0 if all_but_one is None else all_but_one
        everyone = all_but_one if everyone is None else everyone
        return (self.size * everyone - (self.size - 1) * all_but_one) / alone
