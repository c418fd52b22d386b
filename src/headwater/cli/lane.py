"""The process of one flow of `headwater serve`, which starts it: runs the flow, checks it, or replays its dead letters."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headwater.cli.locate import find_flow
from headwater.cli.promise import GivingWay, contract_of, start_promised
from headwater.cli.rewire import rewire
from headwater.data.jit import answering_at_once
from headwater.engine import RUNNERS, Options, start
from headwater.engine.memory import keep_freed, share_arenas
from headwater.errors import FlowError, HeadwaterError, RunError, listed, suggestion
from headwater.flow.contract import Contract
from headwater.flow.endpoints import check_append
from headwater.flow.flow import Flow
from headwater.flow.steps import Write
from headwater.io.lock import Lock
from headwater.serve.claims import check_files, files_of, take_files
from headwater.serve.home import FlowHome
from headwater.serve.lane import Lane, Line, end_with_server, graph_of, prepare
from headwater.serve.messages import Answer, Assignment, Order, encodable, raw
from headwater.serve.settings import Settings, settings_beside

if TYPE_CHECKING:
    from headwater.rate.advance_reservation import AdvanceReservation
    from headwater.rate.application import Application

    Ahead = AdvanceReservation | Application | None

_SPARK = "spark"
_LOOKS = 5  #: at a checkpoint of a run that goes on, and may remove it at any moment


def main() -> None:
    """Do what the server says over the line that it has handed over."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    to_server = Line(int(sys.argv[1]))
    task = to_server.hear()
    if not isinstance(task, Assignment):
        return
    ready: _Ready | None = None
    if task.what == "warm":
        outcome = prepare(to_server, partial(_make_ready, task))
        if outcome is None:
            return
        ready, task = outcome
    if task.what == "run":
        way = GivingWay()
        lane, begin = Lane(to_server, task), partial(_begin, way)
        if ready is None:
            code = lane.live(_make_flow, begin, way.look)
        else:
            flow, ahead = ready
            code = lane.live(lambda _: flow, partial(begin, ahead=ahead), way.look)
        sys.stdout.flush()
        os._exit(code)  # whatever a step has left behind that does not end
    answer = {"check": _check, "replay": _replay, "rest": _rest}.get(task.what)
    try:
        if answer is None:
            _try_queries(to_server, task)
            return
        with end_with_server(to_server):
            flow = _flow(task)
        to_server.say(answer(task, flow))
    except HeadwaterError as error:
        to_server.say(Answer(why=encodable(str(error))))


def _flow(task: Assignment) -> Flow:
    """Make the flow of a file as its settings want it."""
    settings = task.settings
    beside = settings_beside(Path(task.file))
    name = f"{task.file}:{settings.flow}" if settings.flow else task.file
    inputs = [f"{source}={path}" for source, path in settings.inputs.items()]
    output = None if settings.output is None else Path(settings.output)
    with answering_at_once():
        flow = find_flow(name, task.text)
        if settings.queries:
            from headwater.serve.added_queries import with_queries

            with_queries(flow, settings.queries)
        for source in settings.inputs:
            if source not in flow.steps or not flow.steps[source].is_source:
                sources = [each for each, step in flow.steps.items() if step.is_source]
                close = suggestion(source, sources)
                raise FlowError(f"{beside}: inputs.{source} is no source; sources are {listed(sources)}{close}")
        return rewire(flow, inputs=inputs, output=output, rate=settings.rate, may_come=True)


def _options(task: Assignment) -> dict[str, Any]:
    """Return the options of the engine, checked; what is wrong is told with the file of settings and the key."""
    settings, beside = task.settings, settings_beside(Path(task.file))
    options = dict(settings.options)
    runners = (*RUNNERS, _SPARK)
    if settings.on not in runners:
        close = suggestion(settings.on, runners)
        raise RunError(f"{beside}: on: there is no runner {settings.on!r}; runners are {listed(runners)}{close}")
    if settings.on == _SPARK and (options or settings.every is not None):
        raise RunError(f"{beside}: options and every are the engine's and mean nothing with on = 'spark'")
    if settings.on != _SPARK and (settings.master is not None or settings.conf):
        name = "conf" if settings.master is None else "master"
        raise RunError(f"{beside}: {name} is Spark's and means nothing with on = {settings.on!r}")
    for name in settings.conf:
        if not name.startswith("spark."):
            raise RunError(f"{beside}: conf.{name}: settings of Spark's begin with spark., such as spark.driver.memory")
    own_keys = ("checkpoint", "every", "allow_dropped_state")
    names = [*(name for name in Options.__dataclass_fields__ if name not in own_keys), "lanes"]
    for name in options:
        if name not in names:
            close = suggestion(name, names)
            raise RunError(f"{beside}: options.{name}: the engine has none such; options are {listed(names)}{close}")
    if settings.checkpoint:
        options |= {"allow_dropped_state": settings.allow_dropped_state}
        options |= {} if settings.every is None else {"every": settings.every}
    for name, value in options.items():
        if name != "lanes":
            _check_option(f"{beside}: {name}" if name in own_keys else f"{beside}: options.{name}", name, value)
    return options


def _check_option(where: str, name: str, value: Any) -> None:
    """Raise what is wrong with one option of the engine, with where it is written."""
    try:
        Options(**{name: value})
    except TypeError as error:
        raise RunError(f"{where} is of the wrong kind: {error}") from None
    except HeadwaterError as error:
        raise RunError(f"{where}: {error}") from None


def _contract(task: Assignment, flow: Flow) -> Contract | None:
    """Return what is promised, by the settings or by the flow itself."""
    settings = task.settings
    terms = settings.promise, settings.within, settings.above, settings.burst
    try:
        return contract_of(flow, *terms)
    except FlowError as error:
        if not any(terms):
            raise
        keys = ("promise", "within", "above", "burst")
        at = ", ".join(key for key, value in zip(keys, terms, strict=True) if value)
        raise FlowError(f"{settings_beside(Path(task.file))}: {at}: {error}") from None


def _make_flow(task: Assignment) -> Flow:
    """Make the flow, in a process that is to run it."""
    share_arenas()
    if "lanes" in task.settings.options:
        keep_freed()
    return _flow(task)


class _Ready(NamedTuple):
    """A flow that is to run soon, and what was asked for it already."""

    flow: Flow
    ahead: Ahead = None


def _make_ready(task: Assignment) -> _Ready:
    """Make a flow that is to run soon, and load what it will need; nothing that is kept of it is looked at."""
    from headwater.engine.dead import keeping
    from headwater.engine.warm import load_ahead

    flow = _make_flow(task)
    if task.settings.on == _SPARK:
        from headwater.cli import spark_part

        return _Ready(flow, spark_part.prepare(flow, _contract(task, flow), task.settings))
    load_ahead(keeping(flow, FlowHome(Path(task.home)).dead) if task.settings.dead else flow)
    if "lanes" in task.settings.options:
        from headwater.engine.lanes.child import wait_for_compiler

        wait_for_compiler()  # as long as no record waits for that
    ask = _ahead(task, flow)
    gc.collect()
    gc.freeze()  # no record waits for a look at all that was imported
    return _Ready(flow, None if ask is None else ask())


def _ahead(task: Assignment, flow: Flow) -> Callable[[], AdvanceReservation] | None:
    """Return what has the cores held that a flow will be promised; None where those have to be measured, or tried, first."""
    settings, contract = task.settings, _contract(task, flow)
    if contract is None or settings.trial or settings.profile is None:
        return None
    from headwater.flow.profile import Profile
    from headwater.rate import starting  # noqa: F401 - what the flow will run in
    from headwater.rate.advance_reservation import AdvanceReservation

    profile = Profile.load(Path(settings.profile))
    return partial(AdvanceReservation, flow, contract, profile=profile, best_effort=settings.best_effort)


def _begin(way: GivingWay, task: Assignment, flow: Flow, ahead: Ahead = None) -> Any:
    """Start the flow, and return the run in progress."""
    settings, home = task.settings, FlowHome(Path(task.home))
    options = _options(task)
    take_files(files_of(flow), Path(task.file).absolute(), home.path)
    checkpoint = home.checkpoint if settings.checkpoint else None
    if settings.on == _SPARK and settings.portable:
        from headwater.cli import spark_part

        contract = _contract(task, flow)
        if contract is None:
            way.begin()
        return spark_part.begin(flow, contract, settings, home, cast("Application | None", ahead))
    if settings.on == _SPARK:
        from headwater import spark

        way.begin()
        return spark.start(flow, master=settings.master, settings=settings.conf, checkpoint=checkpoint)
    contract = _contract(task, flow)
    dead = home.dead if settings.dead else None
    if contract is not None and settings.on == "engine":
        engines = dict.fromkeys(("workers", "take", "linger", "lanes")) | options | {"dead": dead}
        return start_promised(
            flow,
            contract,
            engines,
            profile=None if settings.profile is None else Path(settings.profile),
            best_effort=settings.best_effort,
            realtime=False,
            checkpoint=checkpoint,
            ahead=ahead,
            **({} if settings.trial else {"trial_s": 0.0}),
        )
    way.begin()
    return start(flow, on=settings.on, dead=dead, checkpoint=checkpoint, **options)


def _check(task: Assignment, flow: Flow) -> Answer:
    """Raise what is wrong with a flow, or does not fit what is kept of it; nothing is opened but the last checkpoint."""
    flow.check()
    _options(task)
    _contract(task, flow)
    home = FlowHome(Path(task.home))
    if task.settings.checkpoint and task.settings.on != _SPARK and home.checkpoint.is_dir():
        _check_against(flow, task.settings, home)
    files = files_of(flow)
    check_files(files, home.path)
    return Answer(result=raw(graph_of(flow)), writes=files)


def _check_against(flow: Flow, settings: Settings, home: FlowHome) -> None:
    from headwater.engine.checkpoint.compatibility import Compatibility
    from headwater.engine.checkpoint.store import Store, refuse_others
    from headwater.engine.dead import keeping
    from headwater.engine.lanes import lane_count
    from headwater.engine.lanes.layout import laid_out
    from headwater.engine.lanes.wiring import Wiring
    from headwater.io.move_marker import refuse_moved

    refuse_others(home.checkpoint)
    refuse_moved(home.checkpoint)
    as_run = keeping(flow, home.dead) if settings.dead else flow
    for attempt in reversed(range(_LOOKS)):
        try:
            checkpoint = Store(home.checkpoint).latest()
            break
        except RunError:
            if not attempt:
                raise
            time.sleep(0.1)
    if checkpoint is None:
        return
    lanes = lane_count(as_run, settings.options.get("lanes", 1))
    now = Wiring(laid_out(as_run), lanes, share=False).distribution() if lanes > 1 else None
    Compatibility(checkpoint, as_run, now, allow_dropped=settings.allow_dropped_state)
    for step in as_run.steps.values():
        if isinstance(step.kind, Write) and step.name in checkpoint.content["steps"]:
            check_append(step.kind.sink, step.inputs[0].schema)


def _try_queries(to_server: Line, task: Assignment) -> None:
    """Try queries, one after the other, until the server has no more; no flow's own file is needed for that."""
    current: Assignment | Order | None = task
    while isinstance(current, Assignment):
        with end_with_server(to_server):
            to_server.say(_try_query(current))
        current = to_server.hear()


def _try_query(task: Assignment) -> Answer:
    """Try a query on records that were looked at, or on a file."""
    trial = task.trial
    assert trial is not None
    try:
        from headwater.serve.trial import try_on_file, try_on_records

        if trial.file:
            result = try_on_file(trial.text, trial.stream, Path(trial.file), trial.most)
        else:
            result = try_on_records(trial.text, trial.stream, trial.schema, trial.records)
    except ModuleNotFoundError as error:
        if error.name != "lark":
            raise
        return Answer(why="queries need the package lark: pip install 'headwater[query]'")
    except HeadwaterError as error:
        return Answer(why=encodable(str(error)))
    return Answer(result=raw(result))


def _rest(task: Assignment, flow: Flow) -> Answer:
    """Have what Spark has of a part kept as the engine does, after a process that could not do so itself."""
    from headwater.deploy.site.on_spark import rest

    rest(flow, FlowHome(Path(task.home)), task.settings.master, task.settings.conf)
    return Answer()


def _replay(task: Assignment, flow: Flow) -> Answer:
    """Give dead letters to the steps that they broke, and say which of them are done with; without the server too."""
    from headwater.engine.dead import replay
    from headwater.io.dead import DeadLetterFolder

    home = FlowHome(Path(task.home))
    lock = Lock(home.path, "what is kept of the flow,")
    try:
        letters = DeadLetterFolder(home.dead).chosen(task.ids, task.step)
        result = replay(flow, home.dead, letters, task.changes)
    finally:
        lock.release()
    document = {
        "released": result.released,
        "kept": {str(number): why for number, why in result.kept.items()},
        "report": None if result.report is None else result.report.to_json(),
    }
    return Answer(result=raw(document))


if __name__ == "__main__":
    main()
