"""A run in progress, whoever runs it: the engine, Spark and the simulator all hand out one of these."""

from __future__ import annotations

from typing import Protocol, Self

from headwater.errors import RunError
from headwater.metrics import Report, Sample


class Run(Protocol):
    """A flow at work.

    `engine.start`, `spark.start` and `sim.start` return one that has begun. Who follows it waits for a moment at a time::

        while (report := run.wait(1.0)) is None:
            show(run.sample())
    """

    @property
    def runner(self) -> str:
        """What runs the flow, as its report names it."""

    def start(self) -> Self:
        """Begin, and return at once. A run begins only once; what cannot be opened is an error here, not of `wait`."""

    def sample(self) -> Sample:
        """Return everything counted since the run began; once it is over, what it came to."""

    def stop(self) -> None:
        """Read no more; what was read is still processed. Returns at once, and may be called again or after the end."""

    def abort(self) -> None:
        """End at once. What was read and not processed is counted as left, or read again from a checkpoint.

        Returns before everything is closed; `wait` for that.
        """

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end and return the report; None when the time was up first, and the run goes on.

        What ended the run too early is raised as a `RunError`, which carries the report. May be called again.
        """


def outcome(report: Report, error: RunError | None) -> Report:
    """Return the report of a run that is over; what ended it too early is raised, and carries the report."""
    if error is not None:
        error.report = report
        raise error
    return report
