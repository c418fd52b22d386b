from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import spill
from headwater.io.spill import SpillFile

SCHEMA = Schema.of({"n": int, "text": str})


def numbered(number, length=50):
    return Batch.of({"n": np.full(length, number), "text": ["x" * (number % 7)] * length}, SCHEMA)


@given(st.lists(st.booleans() | st.integers(0, 400), max_size=60))
def test_batches_come_back_first_in_first_out(tmp_path_factory, moves):
    """A number appends a batch of that length; a truth value pops one."""
    directory = tmp_path_factory.mktemp("spill")
    queue, expected = SpillFile(directory, max_bytes=10**6), deque()
    for number, move in enumerate(moves):
        if not isinstance(move, bool):
            queue.append(numbered(number, move))
            expected.append((number, move))
        elif expected:
            number, length = expected.popleft()
            assert queue.popleft().rows() == numbered(number, length).rows()
        assert len(queue) == len(expected)
    queue.close()


def test_what_is_consumed_leaves_the_disk(tmp_path):
    queue = SpillFile(tmp_path, max_bytes=100_000)
    most = 0
    for number in range(1000):
        queue.append(numbered(number))
        if number >= 10:
            queue.popleft()
        most = max(most, queue.nbytes)
    assert most < 100_000
    while len(queue):
        queue.popleft()
    assert queue.nbytes == 0
    queue.close()


def test_no_file_is_left_in_the_directory(tmp_path):
    queue = SpillFile(tmp_path / "made" / "for it")
    queue.append(numbered(1))
    assert list((tmp_path / "made" / "for it").iterdir()) == []
    queue.close()
    assert (len(queue), queue.nbytes) == (0, 0)


def test_the_limit_refuses_a_batch_and_keeps_the_others(tmp_path):
    queue = SpillFile(tmp_path, max_bytes=10_000)
    for number in range(5):
        queue.append(numbered(number))
    with pytest.raises(InputError, match=r"would pass the limit of 10,000"):
        queue.append(numbered(5, length=200))
    assert [queue.popleft()["n"][0] for _ in range(5)] == list(range(5))
    queue.append(numbered(7))
    assert queue.popleft()["n"][0] == 7
    queue.close()


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    """The kernel itself says that the device is full."""
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(spill, "open_nameless", lambda directory: full)
        queue = SpillFile(tmp_path)
        with pytest.raises(InputError, match=r"the disk is full; free some space"):
            queue.append(numbered(1))
        assert (len(queue), queue.nbytes) == (0, 0)


def test_half_a_batch_on_a_full_disk_is_taken_back(tmp_path, file_limit):
    queue = SpillFile(tmp_path)
    queue.append(numbered(1))
    with file_limit(queue.nbytes + 100), pytest.raises(InputError, match="as large as it may get"):
        queue.append(numbered(2))
    queue.append(numbered(3))
    assert [queue.popleft()["n"][0] for _ in range(2)] == [1, 3]
    queue.close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot spill to .*file"):
        SpillFile(tmp_path / "file").append(numbered(1))


def test_an_empty_queue_has_nothing_to_give(tmp_path):
    with pytest.raises(IndexError):
        SpillFile(tmp_path).popleft()
