"""Dhalion, after Floratou et al. and Heron's health manager: it looks for symptoms, diagnoses, and scales by restarting.

Symptoms are backpressure (how long sources were held), queues that grow, and steps that are hardly used. Backpressure is
put down to the step whose queue has grown most; unless the instances of that step fare very differently, it is scaled to
⌈p(1 + min(4, bp/(1000 − bp)))⌉, bp being backpressure in ms/s. What is hardly used is scaled down. To scale is to stop,
to save all state by key, to build the flow anew and to load it. An action that did not help is not taken again.

Here instances are threads, or are served by the engine's workers: settings choose, as they do the interval, which is 120 s
in Heron and a few seconds here, lest nothing happen in a lap. Left to itself the process has the whole machine from the
beginning, and nothing to gain by scaling. In `containers`, as in a cluster, it has what one of them has, a fifth more than
the rate needs that it begins with, and gets another with every further instance of its most parallel step.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from headwater import engine
from headwater.clock import now_ns
from headwater.engine.run import EngineRun
from headwater.errors import RunError
from headwater.metrics import Sample
from headwater_bench.experiments.rates.lap import Lap
from headwater_bench.experiments.rates.loads import INSTANCES, Judge, Offered, flow_of
from headwater_bench.experiments.rates.quota import Containers

_MOST = 8  #: instances of one step
_NOISE = 0.02  #: the share of the time that sources were held, up to which that is no symptom, as in Heron
_GROWS_S = 0.05  #: a queue that grows by more than so many seconds' worth of input in an interval is a symptom
_IDLE = 0.05  #: the utilisation below which a step has more instances than it needs
_HELPED = 0.9  #: of the backpressure that was there before, below which an action has helped
_STATELESS_SINKS = ("publish", "insert")


class Dhalion:
    """A flow under Dhalion: a run that is replaced whenever it is scaled."""

    def __init__(self, lap: Lap, source: Offered, judge: Judge) -> None:
        self._lap, self._source, self._judge = lap, source, judge
        self._interval_s = float(lap.settings.get("interval_s", 5.0))
        self._on = str(lap.settings.get("on", "engine"))
        self._saved = tempfile.TemporaryDirectory(prefix="headwater-dhalion-")
        self.instances = dict.fromkeys(INSTANCES[lap.flow], 1)
        self._scaled: list[dict[str, Any]] = []
        self._useless: set[tuple[str, int]] = set()
        self._fixed: set[str] = set()  #: steps whose state cannot be split
        self._last: tuple[str, int, float] | None = None  #: step, instances and the symptom before the last action
        self._containers = Containers() if lap.settings.get("containers") else None
        self._done = threading.Event()
        self._running = self._start()
        self._watch = threading.Thread(target=self._manage, name="dhalion", daemon=True)
        self._watch.start()

    def used_s(self) -> float:
        """Return this process's time."""
        return time.process_time()

    def account(self) -> dict[str, Any]:
        """Return what was scaled when, and the settings."""
        settings = {"interval_s": self._interval_s, "on": self._on}
        container = 0.0 if self._containers is None else self._containers.cores
        return {"scaled": self._scaled, "settings": settings, "container_cores": round(container, 3)}

    def abort(self) -> None:
        """End at once."""
        self._done.set()
        self._watch.join(5)
        self._running.abort()
        with suppress(RunError):
            self._running.wait(5)
        self._saved.cleanup()

    # -- the loop -------------------------------------------------------------------------------------------------------

    def _start(self) -> EngineRun:
        flow = flow_of(self._lap.flow, self._source, self._judge, self.instances)
        # state is saved when a run ends; between, a checkpoint would only cost
        return engine.start(flow, on=self._on, checkpoint=self._saved.name, every="1 h")

    def _manage(self) -> None:
        if self._containers is not None:
            self._containers.size(self.used_s, self._done)
        before = self._running.sample()
        while not self._done.wait(self._interval_s):
            now = self._running.sample()
            change = self._resolved(before, now)
            if change is not None:
                self._scale(*change)
                now = self._running.sample()
            before = now

    def _allow(self) -> None:
        """Have as many containers as the most parallel step has instances."""
        if self._containers is not None:
            self._containers.allow(max(self.instances.values()))

    def _scale(self, step: str, instances: int) -> None:
        began_s, began_ns = time.monotonic(), now_ns()
        self._running.stop()
        with suppress(RunError):
            self._running.wait(60)
        if self._done.is_set():
            return
        had, self.instances[step] = self.instances[step], instances
        try:
            self._running = self._start()
        except RunError:  # it has state that is not by key, and cannot be split: it goes on as it was
            self.instances[step] = had
            self._fixed.add(step)
            self._running = self._start()
        self._allow()
        took_s = round(time.monotonic() - began_s, 3)
        self._scaled.append({"step": step, "to": self.instances[step], "took_s": took_s, "at_ns": began_ns})

    # -- detect, diagnose, resolve --------------------------------------------------------------------------------------

    def _resolved(self, before: Sample, now: Sample) -> tuple[str, int] | None:
        """Return which step should have how many instances; None where nothing is to be done."""
        span_s = max(now.at_s - before.at_s, 1e-9)
        backpressure = min(0.999, max(0.0, (now.backpressure_s - before.backpressure_s) / span_s))
        grown = {name: now.steps[name].left - before.steps[name].left for name in self.instances if name in now.steps}
        worst = max(grown, key=lambda name: grown[name])
        came = max(1, now.records_in - before.records_in)
        symptom = max(backpressure, min(0.999, grown[worst] / came)) if grown[worst] > 0 else backpressure
        self._judge_last(symptom)
        if backpressure > _NOISE or grown[worst] / came > _GROWS_S:
            able = [name for name in self.instances if name in now.steps and name not in self._fixed]
            slow = max(able, key=lambda name: now.steps[name].left)
            return self._up(slow, symptom)
        return self._down(before, now)

    def _judge_last(self, symptom: float) -> None:
        """Black-list the last action if what it was for is as bad as before."""
        if self._last is not None:
            step, instances, before = self._last
            if symptom > 0 and symptom > _HELPED * before:
                self._useless.add((step, instances))
            self._last = None

    def _up(self, step: str, symptom: float) -> tuple[str, int] | None:
        has = self.instances[step]
        count = min(_MOST, math.ceil(has * (1 + min(4.0, symptom / (1 - symptom)))))
        if count <= has or step in self._fixed or (step, count) in self._useless:
            return None
        self._last = (step, count, symptom)
        return step, count

    def _down(self, before: Sample, now: Sample) -> tuple[str, int] | None:
        """Free what is hardly used, if nothing is amiss."""
        for step, has in self.instances.items():
            if has > 1 and step not in _STATELESS_SINKS and step in now.steps:
                used = now.steps[step].since(before.steps[step]).utilisation
                if used < _IDLE and (step, has - 1) not in self._useless:
                    self._useless.add((step, has))  # nor is it scaled to that again at once
                    return step, has - 1
        return None
