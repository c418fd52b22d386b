"""Runs a flow on one device: `scheduler/` decides, `workers` does; `threads` is the baseline that leaves it to the system.

`run` is what both runners share, `source` a source at work, `checkpointed_source` what checkpoints ask of one, `policy/`
one scheduling idea per file, `options` what can be chosen, `profiler` what steps cost; `lanes/` runs a flow in several
processes, each of them one such run. What they run, and where it sends its records, is `operators.task` and
`operators.execution_graph`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, overload

from headwater.data.jit import answering_at_once
from headwater.engine.lanes import Lanes, LanesRun, lanes_of
from headwater.engine.options import Options
from headwater.engine.run import EngineRun
from headwater.engine.threads import ThreadPerStep
from headwater.engine.workers import WorkerPool
from headwater.errors import RunError, listed
from headwater.flow.flow import Flow
from headwater.metrics import Report

__all__ = ["RUNNERS", "EngineRun", "Options", "run", "start"]

RUNNERS: dict[str, type[EngineRun]] = {"engine": WorkerPool, "threads": ThreadPerStep}


@overload
def start(
    flow: Flow, *, on: str = "engine", lanes: None = None, dead: str | Path | None = None, **options: Any
) -> EngineRun: ...


@overload
def start(
    flow: Flow, *, on: str = "engine", lanes: Lanes | None, dead: str | Path | None = None, **options: Any
) -> EngineRun | LanesRun: ...


def start(
    flow: Flow, *, on: str = "engine", lanes: Lanes | None = None, dead: str | Path | None = None, **options: Any
) -> EngineRun | LanesRun:
    """Start a flow and return the run in progress; options are those of `Options`.

    With `lanes` the flow runs in so many processes of one worker each ("auto" for one on each processor), forked here.
    With `dead`, dead letters are kept in this folder, for `headwater dead`.
    """
    if not isinstance(flow, Flow):
        raise RunError(f"a Flow is run; got {type(flow).__name__} {flow!r}")
    if dead is not None:
        from headwater.engine.dead import keeping

        flow = keeping(flow, dead)
    if on not in RUNNERS:
        raise RunError(f"there is no runner {on!r} here; runners are {listed(RUNNERS)}")
    if lanes is not None:
        if on != "engine":
            raise RunError(f"lanes are the engine's and mean nothing with the runner {on!r}")
        return lanes_of(flow, lanes, **options).start()  # waits for the compiler, whose work all lanes share
    with answering_at_once():
        return RUNNERS[on](flow, Options(**options)).start()


def run(
    flow: Flow, *, on: str = "engine", lanes: Lanes | None = None, dead: str | Path | None = None, **options: Any
) -> Report:
    """Run a flow to its end and return the report; interrupted, the run is aborted and its sinks are closed."""
    running = start(flow, on=on, lanes=lanes, dead=dead, **options)
    try:
        report = running.wait()
    except KeyboardInterrupt:
        running.abort()
        with suppress(RunError):
            running.wait()
        raise
    assert report is not None
    return report
