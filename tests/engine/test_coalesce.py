"""Small batches that a reader has at once are handed over together; its end and its trouble come after them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Flow, engine, io
from headwater.clock import now_ns
from headwater.data.batch import NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.engine.coalesce import CoalescingReader
from headwater.errors import InputError

SCHEMA = Schema.of({"n": int})
LATER_NS = 3_600 * 10**9  # no machine is so slow


class Small:
    """Hands out numbers in batches of given sizes, whatever is asked for, then ends, or fails."""

    schema = SCHEMA

    def __init__(self, sizes, error=None, watermarks=()):
        self._sizes, self._error, self._watermarks = sizes, error, watermarks
        self.position = self._at = 0

    def open(self, reject):
        self.position = self._at = 0
        return self

    def read(self, limit, timeout_s):
        if self._at == len(self._sizes):
            self.position += 1  # whatever a reader does to its position when it fails
            if self._error is not None:
                raise self._error
            return None
        size = self._sizes[self._at]
        batch = Batch.of({"n": list(range(self.position, self.position + size))}, SCHEMA)
        batch.watermark = NO_WATERMARK if self._at not in self._watermarks else self._at
        self._at += 1
        self.position += size
        return batch

    def close(self):
        pass


def gathered(reader, most=100):
    gathering = CoalescingReader(reader)
    first = gathering.read(most, 0)
    return gathering, gathering.gather(first, most, now_ns() + LATER_NS)


def test_small_batches_that_are_there_at_once_become_one():
    gathering, batch = gathered(Small([10, 10, 10, 10]), most=35)
    assert (batch.length, gathering.position) == (30, 30)  # ten more would be more than are wanted


@pytest.mark.parametrize(("sizes", "length"), [([10, 20, 3, 10], 33), ([10, 0, 10], 10), ([0, 10], 0), ([100], 100)])
def test_it_ends_with_one_that_is_smaller(sizes, length):
    assert gathered(Small(sizes))[1].length == length


def test_what_follows_a_watermark_is_not_with_what_precedes_it():
    _, batch = gathered(Small([10, 10, 10], watermarks=[1]))
    assert (batch.length, batch.watermark) == (20, 1)


def test_nothing_is_gathered_once_its_moment_is_over():
    gathering = CoalescingReader(Small([10, 10]))
    first = gathering.read(100, 0)
    assert gathering.gather(first, 100, now_ns() - LATER_NS) is first


def test_an_end_comes_after_the_records_before_it():
    gathering, batch = gathered(Small([10, 10]))
    assert batch.length == 20
    assert gathering.read(100, 0) is None


def test_trouble_comes_after_the_records_before_it_and_moves_no_position():
    gathering, batch = gathered(Small([10, 10], InputError("broken")))
    assert (batch.length, gathering.position) == (20, 20)
    with pytest.raises(InputError, match="broken"):
        gathering.read(100, 0)


@given(st.lists(st.integers(0, 70), max_size=40))
def test_every_record_comes_once_and_in_order(sizes):
    flow = Flow("small")
    flow.read("in", Small(sizes)).write("out", out := io.Collect())
    engine.run(flow)
    assert [row["n"] for row in out.records] == list(range(sum(sizes)))
