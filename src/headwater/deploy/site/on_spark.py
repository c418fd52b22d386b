"""A part that runs on Spark: what is kept of it is the engine's form while it stands still, and Spark's while it runs.

So whoever cuts a flow anew, or goes on with a part elsewhere, has one form to deal with. A part that is started goes on from
what Spark has where a run was cut off, else from what is kept; one that is stopped, or has ended, is kept again. Of the two
one counts at any moment, and the other says so: whoever is killed, the next one finds out what is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

from headwater.deploy.bridge.outlet import Outlet
from headwater.deploy.takeover import take_over
from headwater.engine.checkpoint.store import Store
from headwater.errors import HeadwaterError
from headwater.flow.flow import Flow
from headwater.flow.steps import Write
from headwater.io.move_marker import read_move
from headwater.metrics import Report, Sample
from headwater.serve.home import FlowHome

log = logging.getLogger(__name__)

_SPARK = "spark"
_LOOK_S = 0.05


def spark_folder(home: FlowHome) -> Path:
    """Return where Spark keeps what it has of a part, while it runs or after it was killed."""
    return home.path / _SPARK


def start(flow: Flow, home: FlowHome, master: str | None, settings: Mapping[str, str], **options: Any) -> SparkPart:
    """Have a part go on on Spark, and return the run in progress; `options` are further ones of Spark's."""
    from headwater import spark
    from headwater.spark.session import LOCAL, cores_of

    if _is_over(home):
        rest(flow, home, master, settings)
    folder = spark_folder(home)
    if not folder.exists() and any(home.checkpoint.glob("*.checkpoint")):
        buckets = cores_of(master or LOCAL)
        take_over(flow, home.checkpoint, folder, on="spark", buckets=buckets, fresh=_fresh(flow, home.checkpoint))
    run = spark.start(flow, master=master, settings=settings, checkpoint=folder, **options)
    return SparkPart(run, home, master, settings)


def rest(flow: Flow, home: FlowHome, master: str | None, settings: Mapping[str, str]) -> None:
    """Have what Spark has of a part that stands still kept as the engine does; RunError where that cannot be."""
    folder = spark_folder(home)
    if not folder.exists():
        return
    if not (_is_over(home) and any(home.checkpoint.glob("*.checkpoint"))):
        if not _is_over(home):
            _finish(flow, folder, master, settings)
        rmtree(home.checkpoint, ignore_errors=True)  # what Spark began with: it has come further
        take_over(flow, folder, home.checkpoint, on="engine", ended=True)
    rmtree(folder, ignore_errors=True)


def _finish(flow: Flow, folder: Path, master: str | None, settings: Mapping[str, str]) -> None:
    """Have a micro-batch done that was cut off: what came of it may have been sent over a bridge, and not be taken back."""
    from headwater import spark
    from headwater.spark.checkpoint import Checkpoint

    checkpoint = Checkpoint(folder)
    last_begun = checkpoint.last_begun()
    if checkpoint.committed() >= last_begun:
        return
    for step in flow.steps.values():
        if isinstance(step.kind, Write) and isinstance(step.kind.sink, Outlet):
            step.kind.sink.linger_s = 0.0  # who is to take it may stand still, too
    run = spark.start(flow, master=master, settings=settings, checkpoint=folder)
    while not (checkpoint.is_committed(last_begun) or run.wait(_LOOK_S)):
        pass
    run.stop()
    run.wait()


def _is_over(home: FlowHome) -> bool:
    """Say whether what Spark has does not count any more."""
    folder = spark_folder(home)
    return folder.exists() and read_move(folder) is not None


def _fresh(flow: Flow, checkpoint: Path) -> list[str]:
    """Return the steps that a part begins with: bridges are others after each cut."""
    latest = Store(checkpoint).latest()
    steps = {} if latest is None else latest.content["steps"]
    return [name for name in flow.steps if name not in steps]


class SparkPart:
    """A part at work on Spark, as `headwater.run.Run` has it; once it is over, it is kept as the engine does."""

    def __init__(self, run: Any, home: FlowHome, master: str | None, settings: Mapping[str, str]) -> None:
        self._run, self._home, self._master, self._settings = run, home, master, settings
        self.runner, self.flow = run.runner, run.flow
        self.stopping, self.done = run.stopping, run.done
        self._is_kept = False

    def start(self) -> SparkPart:
        """Return it: it has begun."""
        return self

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        sample: Sample = self._run.sample()
        return sample

    def stop(self) -> None:
        """Read no more; what was read is still processed."""
        self._run.stop()

    def abort(self) -> None:
        """End at once."""
        self._run.abort()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end, and until what is left is kept; None when the time was up first."""
        report: Report | None = self._run.wait(timeout_s)
        if report is not None and not self._is_kept:
            self._is_kept = True
            try:
                rest(self.flow, self._home, self._master, self._settings)
            except HeadwaterError as error:  # Spark has it, and whoever asks for it will try again
                log.warning("what Spark has of the part stays as it is for now: %s", error)
        return report
