"""The simulation has teeth: protocols that are broken on purpose are noticed within some hundred seeds."""

import logging

import pytest

from headwater.engine.checkpoint.chain import Chain
from headwater.engine.checkpoint.checkpointer import Checkpointer
from headwater.engine.checkpoint.recovery import Recovery
from headwater.engine.checkpoint.store import Store
from headwater.engine.checkpointed_source import CheckpointedSource
from headwater.errors import HeadwaterError
from headwater.operators.keyed import ScanOperator
from headwater.operators.saving import Saver, Saving
from headwater.sim.disk import SimulatedDisk
from headwater_bench.faults import Trial, ViolationError
from headwater_bench.faults.sinks import SimulatedParts

_MOST = 400  #: seeds until one must have shown it


def no_fsync(patched):
    """A checkpoint is called complete before its bytes are safe."""
    patched.setattr(SimulatedDisk, "fsync", lambda self, fd: None)


def no_fsync_of_names(patched):
    """A checkpoint is called complete before its name is safe."""
    patched.setattr(SimulatedDisk, "fsync_dir", lambda self, path: None)


def no_other_name_first(patched):
    """A checkpoint is written under its own name from the first byte on, and its checksums are not looked at."""
    patched.setattr(Store, "_write", lambda self, path, parts: self._write_safely(path, parts))
    patched.setattr("headwater.engine.checkpoint.store.crc32", lambda data, before=0: 0)


def commit_before_prepare(patched):
    """Sinks let a part be seen before the checkpoint that it belongs to is written."""
    make_safe = Checkpointer._make_safe

    def early(self, number, results):
        safe = make_safe(self, number, results)
        if safe:
            self._commit([task for task in self._run.tasks if task.instance.step.is_sink], number)
        return safe

    # what a sink lets be seen it cannot take back, other than the simulated one
    def open_(self, kept, after, fails):
        self._contents, self._fails, self._part = kept, fails, []
        kept.parts = {number: rows for number, rows in kept.parts.items() if number <= max(after, kept.committed)}

    patched.setattr(Checkpointer, "_make_safe", early)
    patched.setattr(SimulatedParts, "__init__", open_)


def never_safe(patched):
    """The parts of sinks are not made safe before the checkpoint is written."""
    patched.setattr(
        Checkpointer, "_make_safe", lambda self, number, results: [r.pop("safe", 0) for r in results.values()]
    )


def no_queue(patched):
    """What was on its way to a task is not saved with it."""
    patched.setattr(Saving, "result", lambda self: {**self.state, "queue": []})


def queue_not_put_back(patched):
    """What was saved with a task is not put back."""
    patched.setattr(Recovery, "queues", lambda self: [])


def barrier_before_saving(patched):
    """A task says that it is saved as of later than its barrier went on: what comes by other channels is in its state."""
    patched.setattr(Saver, "keep", lambda self, *kept: None)


def position_too_far(patched):
    """A source tells how far it has read, not how far it had when it sent its barrier."""
    saved = Checkpointer.saved_source
    patched.setattr(
        Checkpointer, "saved_source", lambda self, task, number, at: saved(self, task, number, (at or 0) + 1)
    )


def position_too_near(patched):
    """A source tells of fewer records than it has handed over."""
    saved = Checkpointer.saved_source
    nearer = lambda self, task, number, at: saved(self, task, number, max(0, (at or 0) - 1))  # noqa: E731
    patched.setattr(Checkpointer, "saved_source", nearer)


def forgotten_too_early(patched):
    """A source is told to forget all that it has handed over, not what was before the barrier."""
    patched.setattr(CheckpointedSource, "commit", lambda self, number: self._commit_reader(self.handed))


def changes_since_what_came_to_nothing(patched):
    """A checkpoint holds what has changed since one that was never complete."""
    patched.setattr(Chain, "is_whole", lambda self, number: number == 0 or self._complete is None)


def changes_forgotten(patched):
    """What has changed since a whole checkpoint is passed over when a run goes on."""
    patched.setattr(ScanOperator, "change", lambda self, data: None)


def old_ones_removed_too_early(patched):
    """What a checkpoint builds on is removed."""
    patched.setattr(Store, "_chain", lambda self, number: [number][: 1 + bool(self.since(number))])


MUTATIONS = [
    no_fsync,
    no_fsync_of_names,
    no_other_name_first,
    commit_before_prepare,
    never_safe,
    no_queue,
    queue_not_put_back,
    barrier_before_saving,
    position_too_far,
    position_too_near,
    forgotten_too_early,
    changes_since_what_came_to_nothing,
    changes_forgotten,
    old_ones_removed_too_early,
]


#: seeds that have shown a mutation, which are tried first: it takes some seconds to come to these
SHOWN_BY = {changes_since_what_came_to_nothing: 102, old_ones_removed_too_early: 301}


def is_noticed(first):
    for seed in (first, *range(_MOST)):
        try:
            Trial(seed).run()
        except ViolationError as violation:
            # a run that breaks shows nothing: what it leaves must be wrong, or it goes on from what is not there
            if not isinstance(violation.__cause__, AssertionError | HeadwaterError):
                raise
            return True
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__.replace("_", " "))
def test_a_broken_protocol_is_noticed(monkeypatch, mutation):
    logging.disable()
    try:
        with monkeypatch.context() as patched:
            mutation(patched)
            assert is_noticed(SHOWN_BY.get(mutation, 0)), f"{mutation.__doc__} Nobody notices."
    finally:
        logging.disable(logging.NOTSET)
