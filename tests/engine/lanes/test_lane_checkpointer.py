"""What one lane does of what it is told about checkpoints, without a run."""

import threading
from pathlib import Path
from types import SimpleNamespace

from headwater.engine.lanes.checkpoint import Kinds, LaneCheckpointer


class Source:
    inner = False

    def __init__(self):
        self.asked = []

    def ask(self, number, *, final):
        self.asked.append((number, final))


def lane(*sources):
    lock = threading.Lock()
    made = LaneCheckpointer(SimpleNamespace(instances=[]), None, 0, Kinds(), Path("kept"), None)
    made._run = SimpleNamespace(sources=sources, lock=lock, room=threading.Condition(lock), tasks=[])
    return made


def test_sources_are_asked_for_the_checkpoint_that_the_lane_is_told_of():
    source = Source()
    told = lane(source)
    told.tell("begin", 3)
    told.step()
    assert source.asked == [(3, False)]


def test_a_lane_that_is_only_to_look_asks_no_source():
    """A source that was asked for a checkpoint before the first would wait for the last one for ever."""
    source = Source()
    looking = lane(source)
    looking.look_now()
    looking.step()
    assert source.asked == []
