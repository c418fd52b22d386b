"""One seed: a flow, a disk, a schedule, crashes; and whether the end is that of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from headwater.engine.checkpoint.store import Store, Stored
from headwater.errors import RunError
from headwater.operators.keyed import ProcessOperator, ScanOperator
from headwater.operators.snapshot import unpack_state
from headwater.sim.disk import PowerCutError, SimulatedDisk
from headwater_bench.faults.shapes import Shape, shape
from headwater_bench.faults.sinks import SinkContents
from headwater_bench.faults.world import World

SHAPES = 400  #: flows that seeds share
_MOST_MOVES = 20_000
_MOST_RUNS = 12  #: of one trial; the last is left in peace
_CALLS = ("write", "fsync", "fsync_dir", "open", "rename", "unlink", "truncate", "mkdir", "read")


class ViolationError(AssertionError):
    """Something that must hold did not, with the seed that shows it."""


class _Crash(BaseException):
    """The process is gone."""


class Trial:
    """What one seed does; `run` raises ViolationError, or returns what happened."""

    COUNTED = (
        "checkpoints",
        "kills",
        "power cuts",
        "stops",
        "ends",
        "told",
        "rescaled",
        "deleted",
    )  #: what `run` returns counts of

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.shape = shape(self.random.randrange(SHAPES))
        self.disk, self.folder = SimulatedDisk(self.random), "/checkpoints"
        faulty = [call for call in _CALLS if self.random.random() < 0.4] if seed % 3 else []
        self.chances = {call: self.random.choice([0.01, 0.1]) for call in faulty}
        self.sink_fails = self.random.choice([0.0, 0.0, 0.05])
        self.crashes = self.random.choice([0.0, 0.002, 0.01])
        self.rescales = self.random.random() < 0.3
        self.grows = self.shape.may_grow and self.random.random() < 0.3
        self.deleting = Random(f"{seed} deleting")  # apart, so that it changes nothing else that a seed does
        self.deletes = self.deleting.choice([0.0, 0.0, 0.01])
        self.is_deleted = False  #: somebody has deleted all, and there is no new checkpoint yet
        self.sinks: dict[str, SinkContents] = {}
        self.forgotten: dict[str, int] = {}  #: of each source: before which position nothing can be had again
        self.complete = -1  #: the last checkpoint that was called complete
        self.counts: Counter[str] = Counter()
        self.more = 0
        self.peace = False

    def run(self) -> Counter[str]:
        """Run, crash and go on until the flow has ended; then compare."""
        try:
            for number in range(_MOST_RUNS + 1):
                self.peace = number == _MOST_RUNS
                if self._once(number):
                    break
            self._compare()
        except (AssertionError, Exception) as error:
            how = f"rescales={self.rescales}, grows={self.grows}, faults={sorted(self.chances)}, {dict(self.counts)}"
            raise ViolationError(
                f"seed {self.seed}, flow {self.shape.seed}: {type(error).__name__}: {error}; {how}"
            ) from error
        return self.counts

    def _once(self, number: int) -> bool:
        """Run once; return whether all was read and is there."""
        self.disk.chances = {} if self.peace else self.chances
        whole = self.peace or not self.grows or number > 1
        more = self.random.choice([0, 1, 2]) if self.rescales else 0
        try:
            self.disk.fuse = None if self.peace or self.random.random() < 0.5 else self.random.randrange(60)
            self.world = self._opened(more, whole)
            self.world.run(most=_MOST_MOVES)
        except PowerCutError:
            self.disk.crash()
            self.counts["power cuts"] += 1
            return False
        except _Crash:
            self.disk.kill()
            self.counts["kills"] += 1
            return False
        except RunError as error:
            if self.peace or "instances" in str(error):  # whatever the moment, they may be others
                raise
            self.counts["told"] += 1
            self.disk.kill()
            return False
        finally:
            self.disk.fuse = None
        self.counts["stops" if self.world.halted else "ends"] += 1
        return whole and not self.world.halted

    def _opened(self, more: int, whole: bool) -> World:
        records = {name: b if whole else b.slice(0, b.length // 2) for name, b in self.shape.records.items()}
        store = _Watched(self.folder, self.disk, self)
        world = World(self.random, self.shape.graph(more), records, self.sinks, store, self._fails)
        self.counts["rescaled"] += more != self.more
        self.more = more
        after = world.checkpointer.after  # type: ignore[union-attr]
        assert after >= self.complete, f"checkpoint {self.complete} was complete, and the run goes on from {after}"
        self.complete = after
        for source in world.sources:
            name, begins = source.task.name, source.handed or 0
            first = self.forgotten.get(name, 0)
            assert begins >= first, f"source {name!r} was told to forget what is before {first}; it begins at {begins}"
        world.forgotten = self.forgotten
        world.before_move = self._before_move
        return world

    def _before_move(self) -> None:
        if self.peace or self.is_deleted:
            return
        if self.complete >= 0 and not self.world.stopping.is_set() and self.deleting.random() < self.deletes:
            self._delete()
            return
        chance = self.random.random()
        if chance < self.crashes:
            raise _Crash
        if chance > 0.999:
            self.world.stopping.set()

    def _delete(self) -> None:
        """Delete the folder under the run. Who is killed before there is a new checkpoint has lost all; so nobody is."""
        self.disk.delete(self.folder)
        self.disk.chances, self.disk.fuse, self.is_deleted = {}, None, True
        self.counts["deleted"] += 1

    def _fails(self, call: str) -> bool:
        return not (self.peace or self.is_deleted) and self.random.random() < self.sink_fails

    def note_complete(self, number: int) -> None:
        """Take note that a checkpoint is called complete."""
        self.complete = number
        if self.is_deleted:
            self.disk.chances, self.is_deleted = self.chances, False
        self.counts["checkpoints"] += 1
        files = self.disk.listdir(self.folder)
        assert len(files) <= 12 + self.disk.failed, f"too many files: {files}"

    def _compare(self) -> None:
        rows, state = _undisturbed(self.shape)
        contents = _contents(self.sinks)
        for name in rows:
            lost, twice = rows[name] - contents[name], contents[name] - rows[name]
            assert not lost, f"sink {name!r} lacks {sorted(lost.elements())[:3]} ({lost.total()})"
            assert not twice, f"sink {name!r} has too many: {sorted(twice.elements())[:3]} ({twice.total()})"
        assert _state(self.world) == state, "the state of a step is not that of an undisturbed run"
        leftovers = [name for name in self.disk.listdir(self.folder) if name.endswith(".new")]
        assert not leftovers or self.chances, f"files are left over: {leftovers}"


class _Watched(Store):
    """A store that tells a trial of each checkpoint that is complete."""

    def __init__(self, folder: str, disk: SimulatedDisk, trial: Trial) -> None:
        super().__init__(folder, disk)
        self._trial = trial

    def write(
        self, number: int, content: dict[str, Any], states: Sequence[bytes | Stored] = (), *, since: int | None = None
    ) -> None:
        """Write a checkpoint."""
        super().write(number, content, states, since=since)
        self._trial.note_complete(number)


@lru_cache(maxsize=4096)
def _undisturbed(subject: Shape) -> tuple[dict[str, Counter[Any]], Any]:
    sinks: dict[str, SinkContents] = {}
    world = World(Random(0), subject.graph(), subject.records, sinks, None)
    world.run(most=_MOST_MOVES)
    for task in world.tasks:
        if task.instance.step.is_sink:
            assert task.operator is not None
            safe = task.operator.prepare(0)
            assert safe is not None
            safe()
            task.operator.commit(0)
    return _contents(sinks), _state(world)


def _contents(sinks: dict[str, SinkContents]) -> dict[str, Counter[Any]]:
    return {name: Counter(contents.rows()) for name, contents in sinks.items()}


def _state(world: World) -> dict[str, Any]:
    """Return what keyed steps keep, of all instances together."""
    states: dict[str, Any] = {}
    for task in world.tasks:
        of_step = states.setdefault(task.name, {}) if isinstance(task.operator, ProcessOperator | ScanOperator) else {}
        if isinstance(task.operator, ProcessOperator):
            content = unpack_state("process", task.operator.snapshot())
            of_step.update({tuple(key): state for key, state in zip(content["keys"], content["states"], strict=True)})
        elif isinstance(task.operator, ScanOperator):
            content = unpack_state("scan _Tally", task.operator.snapshot())
            if content["slots"]:
                cells = zip(*(content["cells"][name].tolist() for name in ("count", "total")), strict=True)
                of_step.update(zip(content["keys"]["k"].tolist(), cells, strict=True))
    return states
