"""A rehearsal in progress, as `headwater.run.Run` has it: virtual time passes in a thread of its own."""

from __future__ import annotations

import threading
from typing import Self

from headwater.errors import RunError
from headwater.metrics import Report, Sample
from headwater.net.arrays import Ints
from headwater.place.problem import Problem
from headwater.sim.engine import Simulation
from headwater.sim.settings import EngineOptions


class SimRun:
    """A placed flow at work in virtual time; how far that has come by a moment of real time is nowhere promised."""

    runner = "sim"

    def __init__(self, problem: Problem, device: Ints, options: EngineOptions | None = None) -> None:
        self._simulation = Simulation(problem, device, options or EngineOptions())
        self._done = threading.Event()
        self._error: RunError | None = None

    def start(self) -> Self:
        """Let virtual time pass."""
        threading.Thread(target=self._play, name="simulation", daemon=True).start()
        return self

    def _play(self) -> None:
        try:
            self._simulation.play()
        except Exception as error:
            self._error = RunError(f"the simulation broke: {type(error).__name__}: {error}", step="")
            self._error.__cause__ = error
        finally:
            self._done.set()

    def sample(self) -> Sample:
        """Return everything counted up to this moment of virtual time."""
        return self._simulation.sample()

    def stop(self) -> None:
        """Let sources read no more; what is under way still arrives."""
        self._simulation.stopping = True

    def abort(self) -> None:
        """Let virtual time stand still; what is under way is counted as left."""
        self._simulation.stopping = self._simulation.aborted = True

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end, in real time, and return the report; None when the time was up first."""
        if not self._done.wait(timeout_s):
            return None
        report = self._simulation.report()
        if self._error is not None:
            report.error, self._error.report = str(self._error), report
            raise self._error
        return report
