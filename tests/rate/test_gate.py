"""What is above a promise is told by when records were created; it is served, shed or made to wait."""

import numpy as np
import pytest

from headwater import Contract, Schema
from headwater.data.batch import Batch
from headwater.rate.bucket import Bucket
from headwater.rate.gate import Gate
from headwater.rate.windows import Windows

SCHEMA = Schema.of({"n": int})


class Backlog:
    """A reader with records that were created evenly over some seconds, all of them to be had at once."""

    position = 7
    dropped = 3

    def __init__(self, count, seconds):
        self.created = np.linspace(1e18, 1e18 + seconds * 1e9, count).astype(np.int64)

    def read(self, limit, timeout_s):
        taken, self.created = self.created[:limit], self.created[limit:]
        return Batch({"n": np.arange(len(taken))}, len(taken), np.stack([taken, taken], axis=1))

    def close(self):
        self.position = None


def gate(reader, above) -> Gate:
    contract = Contract(100.0, 0.1, above=above)
    return Gate(reader, SCHEMA, Bucket(100, 20), Windows(contract, 0.5, 10**18))


@pytest.mark.parametrize("above", ["best effort", "shed"])
def test_a_backlog_that_came_at_the_rate_is_not_above_it(above):
    through = gate(Backlog(1000, 10), above)
    read = [through.read(50, 0.0).length for _ in range(20)]
    assert sum(read) == 1000
    assert through.dropped == 3  # the reader's own


def test_what_came_faster_is_shed_and_counted():
    through = gate(Backlog(1000, 1), "shed")
    read = [through.read(50, 0.0).length for _ in range(20)]
    assert 100 <= sum(read) <= 121  # a second at the rate, and a burst
    assert through.dropped == 3 + 1000 - sum(read)


def test_what_came_faster_is_served_as_best_effort_and_counted():
    through = gate(Backlog(1000, 1), "best effort")
    assert sum(through.read(50, 0.0).length for _ in range(20)) == 1000
    assert through._bucket.exceeded >= 879


@pytest.mark.parametrize("above", ["shed", "block"])
def test_what_comes_from_another_part_of_the_flow_was_let_in_there(above):
    windows = Windows(Contract(100.0, 0.1, above=above), 0.5, 10**18)
    through = Gate(Backlog(1000, 1), SCHEMA, Bucket(100, 20), windows, passes=True)
    assert sum(through.read(50, 0.0).length for _ in range(20)) == 1000
    assert through.dropped == 3  # the reader's own
    assert windows.is_above(10**18)  # but counted


def test_records_that_come_back_late_and_at_once_are_no_more_than_was_promised():
    """Half of what comes to a part has been elsewhere meanwhile, and the bucket has filled for the other half by then."""
    bucket, windows = Bucket(100, 20), Windows(Contract(100.0, 1.0), 0.5, 10**18)
    soon, late = (Gate(Backlog(100, 2), SCHEMA, bucket, windows) for _ in range(2))
    for _ in range(4):
        assert soon.read(25, 0.0).length == late.read(25, 0.0).length == 25
    assert bucket.exceeded > 0
    assert not windows.is_above(10**18 + 2 * 10**9)
    more = Gate(Backlog(300, 1), SCHEMA, bucket, windows)
    more.read(300, 0.0)
    assert windows.is_above(10**18 + 2 * 10**9)
    assert not windows.is_above(10**18 + 20 * 10**9)  # which was long ago


def test_what_has_to_wait_stays_unread():
    reader = Backlog(1000, 1)
    through = gate(reader, "block")
    assert through.read(50, 0.0).length == 20
    assert through.read(50, 0.0).length < 10
    assert len(reader.created) > 960


def test_everything_else_is_the_reader_s_own():
    through = gate(Backlog(1, 1), "best effort")
    assert through.position == 7
    through.close()
    assert through.position is None
