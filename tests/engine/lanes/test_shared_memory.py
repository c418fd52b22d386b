"""Lanes share the objects of the process that forks them, and leave its own ways with them alone."""

import gc

import pytest

from headwater import Flow, engine, io
from headwater.engine.lanes import shared_memory


class FrozenState:
    """Stands in for the collector of garbage: how many objects it leaves alone, and what it was told."""

    def __init__(self, count):
        self.count, self.told = count, []

    def get_freeze_count(self):
        return self.count

    def __getattr__(self, name):
        return lambda: self.told.append(name)


@pytest.mark.parametrize(("frozen", "told"), [(0, ["collect", "freeze", "forked", "unfreeze"]), (7, ["forked"])])
def test_objects_are_frozen_while_lanes_are_forked_unless_the_program_has_done_so(monkeypatch, frozen, told):
    collector = FrozenState(frozen)
    monkeypatch.setattr(shared_memory, "gc", collector)

    def fork():
        with shared_memory.shared_objects():
            collector.told.append("forked")
            raise OSError("no more processes")

    with pytest.raises(OSError, match="no more"):
        fork()
    assert collector.told == told


def test_what_a_program_has_frozen_is_frozen_after_a_run_in_lanes():
    own = gc.get_freeze_count()
    gc.freeze()
    try:
        before, out = gc.get_freeze_count(), io.Collect()
        flow = Flow("few")
        flow.read("r", io.Items([{"n": 1}, {"n": 2}])).map("same", lambda r: r).write("w", out)
        assert engine.run(flow, lanes=2).extra["lanes"] == 2
        assert gc.get_freeze_count() > before // 2  # some may have been let go of since
    finally:
        if not own:
            gc.unfreeze()
    assert out.records == [{"n": 1}, {"n": 2}]
