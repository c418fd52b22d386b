"""A checkpoint of one runner, taken over by the other: what ran on the engine goes on on Spark, and back.

The old checkpoint is read, the new one written beside it; nothing outside of the two folders is touched, and no sink is
opened, except to bring there what lanes had ready for it. All that could be wrong is told before the new folder is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from typing import Literal, cast, get_args

from headwater.cores import whole_cores
from headwater.deploy.upgrade import fitted
from headwater.errors import HeadwaterError, RunError, listed, suggestion
from headwater.flow.flow import Flow
from headwater.io.files import explained, sync
from headwater.io.lock import Lock
from headwater.io.move_marker import note_move, read_move, refuse_moved
from headwater.operators.moment import Moment

Runner = Literal["engine", "spark"]


@dataclass(frozen=True, slots=True)
class Takeover:
    """What was moved."""

    flow: str
    origin: str
    target: str
    on: Runner  #: who goes on from the target
    part: int  #: the last part of what sinks wrote that counts
    positions: dict[str, object]  #: how far each source was read
    state_bytes: dict[str, int]  #: by step
    waiting: dict[str, int]  #: records that sinks will be given first


def take_over(
    flow: Flow,
    origin: str | Path,
    target: str | Path,
    *,
    on: Runner | None = None,
    buckets: int | None = None,
    was: Flow | None = None,
    renamed: Mapping[str, str] | None = None,
    allow_dropped_state: bool = False,
    fresh: Collection[str] = (),
    ended: bool = False,
) -> Takeover:
    """Turn a checkpoint into one that the other runner goes on from; raises RunError, and has written nothing then.

    `origin` stays as it is, and says from then on that it was moved: no run goes on from it any more. `target` must not be
    there. `buckets` is into how many parts keys are spread on Spark, for good: as many as this machine has processors
    unless told; see `spark.sql.shuffle.partitions`.

    Where steps were added, removed or renamed since, `was` is the flow as it was when the checkpoint was made, and `renamed`
    says what steps are called now; Spark then also goes on from a checkpoint of its own. State that no step has any more is
    lost only with `allow_dropped_state`.

    `fresh` are steps that the flow had not then and begins with, as bridges to other sites are after a move. A run of
    Spark's that has come to its end is taken over only where it may have `ended`.
    """
    before, after = Path(origin).absolute(), Path(target).absolute()
    flow.check()
    is_from = _runner_of(before)
    runner = _chosen(on, is_from, before, changed=was is not None)
    if was is None and (renamed or allow_dropped_state):
        raise RunError("say what the flow was when the checkpoint was made (--was FLOW)")
    if buckets is not None and (runner != "spark" or buckets < 1):
        raise RunError(f"buckets are Spark's parts of keys, a whole number above 0; got {buckets} for {runner}")
    if after == before or (after.exists() and (not after.is_dir() or any(after.iterdir()))):
        raise RunError(f"{after} is there already; give a new folder for the checkpoint that {runner} is to go on from")
    if after.resolve().is_relative_to(before.resolve()):
        raise RunError(
            f"{after} is in the checkpoint that it is made of, and would go with that; give a folder elsewhere"
        )
    lock = Lock(before, "checkpoint")
    try:
        _refuse_moved_elsewhere(before, after)
        moment = _read(was or flow, before, is_from, runner, fresh=fresh, ended=ended)
        new_sinks = [name for name in fresh if flow.steps[name].is_sink]
        if was is not None:
            moment = fitted(moment, was, flow, renamed=renamed, allow_dropped=allow_dropped_state)
            new_sinks += [step.name for step in flow.steps.values() if step.is_sink and step.name not in was.steps]
        with _new(after) as new_folder:
            _write(moment, flow, new_folder, runner, before, buckets or whole_cores(), new_sinks)
            for path in [new_folder, *new_folder.rglob("*")]:
                sync(path)
            note_move(before, after, runner)  # first: two checkpoints to go on from are worse than none
            new_folder.replace(after)
    except OSError as error:
        raise explained(error, error.filename or after, "move a checkpoint to") from error
    finally:
        lock.release()
    sync(after.parent)
    return Takeover(
        flow.name,
        str(before),
        str(after),
        runner,
        moment.part,
        moment.positions,
        {name: size for name, step in moment.steps.items() if (size := len(step.operator.snapshot()))},
        {sink: sum(batch.length for batch in batches) for sink, batches in moment.waiting.items()},
    )


def _runner_of(folder: Path) -> Runner:
    """Return who made a checkpoint; RunError for what is none."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else None
    if names is None:
        raise RunError(f"there is no checkpoint {folder}: no such folder; is the path right?")
    if "headwater.json" in names:
        return "spark"
    if any(name.endswith(".checkpoint") for name in names):
        return "engine"
    raise RunError(f"there is no checkpoint in {folder}, neither of the engine nor of Spark; is the path right?")


def _chosen(on: str | None, is_from: Runner, before: Path, *, changed: bool) -> Runner:
    runners = get_args(Runner)
    if on is not None and on not in runners:
        raise RunError(
            f"there is no runner {on!r} to go on from a checkpoint; they are {listed(runners)}{suggestion(on, runners)}"
        )
    if on == is_from and not (changed and on == "spark"):
        raise RunError(f"checkpoint {before} is one of {_RUNNERS[is_from]}'s already: go on from it as it is")
    return cast(Runner, on or ("engine" if is_from == "spark" else "spark"))


_RUNNERS = {"engine": "the engine", "spark": "Spark"}


def _refuse_moved_elsewhere(before: Path, after: Path) -> None:
    """Refuse a checkpoint that was moved, unless that was cut off before the new one was there."""
    move = read_move(before)
    if move is not None and not (Path(move["to"]) == after and not after.exists()):
        refuse_moved(before)


def _read(flow: Flow, folder: Path, runner: Runner, to: Runner, *, fresh: Collection[str], ended: bool) -> Moment:
    try:
        if runner == "engine":
            from headwater.engine.checkpoint import moment as engines

            return engines.moment_of(folder, flow, fresh=fresh)
        from headwater.spark import moment as sparks

        if to != "spark":
            sparks.check_elsewhere(flow)
        return sparks.moment_of(folder, flow, ended=ended)
    except HeadwaterError as error:
        raise RunError(f"cannot move checkpoint {folder}: {error}") from error


def _write(
    moment: Moment, flow: Flow, folder: Path, runner: Runner, before: Path, buckets: int, new_sinks: list[str]
) -> None:
    from headwater.engine.checkpoint import moment as engines
    from headwater.spark import moment as sparks

    places = list(flow.steps)
    try:
        if runner == "spark":
            sparks.check_sinks(flow, before)
            sparks.write_moment(moment, flow, buckets, folder, origin=before, new_sinks=new_sinks)
            logs = {name: sparks.log_folder(folder, places.index(name)) for name in moment.logs}
        else:
            engines.write_moment(moment, flow, folder)
            logs = {name: engines.log_folder(folder, name) for name in moment.logs}
    except HeadwaterError as error:
        raise RunError(f"cannot move checkpoint {before} to {_RUNNERS[runner]}: {error}") from error
    if moment.sinks.is_dir():
        copytree(moment.sinks, folder / "sinks")
    for name, log in logs.items():
        if moment.logs[name].is_dir():
            # without the places of those who read it there: nothing would be removed that they have not read
            copytree(moment.logs[name], log, ignore=ignore_patterns("*.reader"))
    if runner == "engine":
        sparks.settle_sinks(flow, folder, moment.part)


@contextmanager
def _new(after: Path) -> Iterator[Path]:
    """Give a folder to write to; it is gone if that breaks."""
    fresh = after.with_name(f"{after.name}.new")
    rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
    except BaseException:
        rmtree(fresh, ignore_errors=True)
        raise
