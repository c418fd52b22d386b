"""What a checkpoint does not cost: records do not wait for disks, and state is not copied more often than it must be."""

import threading

import numpy as np
import pytest

from headwater import Flow, engine, io
from headwater.data.codec import decode, encode
from headwater.data.keys import KeyIndex
from waiting import PATIENCE_S


class Slow:
    """A file whose parts take until somebody has seen later records written; on a disk that is slow, so to say."""

    delivery = "transactional"

    def __init__(self, path):
        self.path, self.written, self.waited = path, threading.Event(), []
        self.over = threading.Event()  #: nothing more comes that could be seen

    def open(self, schema):
        return io.JsonLines(self.path).open(schema)

    def transaction(self, schema, ledger):
        opened = io.JsonLines(self.path).transaction(schema, ledger)
        cut, write = opened.cut, opened.write

        def slow_cut(number):
            if not self.over.is_set():
                self.written.clear()
            safe = cut(number)

            def slow_safe():
                self.waited.append(self.written.wait(PATIENCE_S))
                safe()

            return slow_safe

        def seen(batch):
            self.written.set()
            return write(batch)

        opened.cut, opened.write = slow_cut, seen
        return opened


def test_records_are_written_while_a_part_is_made_safe(tmp_path):
    sink = Slow(tmp_path / "out.jsonl")
    flow = Flow("slow")
    numbers = io.Generate(lambda at: {"n": at}, {"n": int}, rate=2_000)
    flow.read("read", numbers).write("write", sink)
    run = engine.start(flow, checkpoint=tmp_path / "kept", every="100 ms")
    while len(sink.waited) < 3 and not run.done.is_set():
        run.done.wait(0.01)
    run.stop()
    sink.over.set()
    sink.written.set()  # of the last part, after which nothing comes
    run.wait()
    assert len(sink.waited) >= 3
    assert all(sink.waited[:3])


def test_an_array_comes_back_as_it_was_and_can_be_written():
    for array in (np.arange(6.0).reshape(2, 3), np.array([], np.int32), np.array([None, "a", 3], object)):
        found = decode(encode([array]))[0]
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()
        assert found.shape == array.shape
        found[:1] = found[:1]


def test_bytes_that_are_no_array_are_told():
    damaged = bytearray(encode(np.arange(3)))
    damaged[4] ^= 0x10
    with pytest.raises(ValueError, match=r"."):
        decode(bytes(damaged))


@pytest.mark.parametrize("kinds", [("int",), ("text",), ("int", "int")])
def test_room_that_was_made_for_keys_changes_none(kinds):
    from headwater.data.column import Text

    plain, roomy = KeyIndex(*kinds), KeyIndex(*kinds)
    for first in (0, 700):
        numbers = np.arange(first, first + 1000)
        columns = [Text.of([f"k{n}" for n in numbers]) if kind == "text" else numbers for kind in kinds]
        roomy.reserve(len(roomy) + 1000)
        assert roomy.slots(columns).tolist() == plain.slots(columns).tolist()
    assert len(roomy) == len(plain) == 1700
