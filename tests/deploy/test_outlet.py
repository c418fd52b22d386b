"""A bridge that is written in parts, each of which ends when it counts, as Spark writes its micro-batches."""

import threading

import numpy as np
import pytest

from headwater.data.batch import END, Batch
from headwater.data.schema import Schema
from headwater.deploy import Inlet, Links, Outlet
from headwater.flow.endpoints import Ledger
from waiting import PATIENCE_S

SCHEMA = Schema.of({"n": int})


@pytest.fixture
def links():
    made = {"cloud": Links(("127.0.0.1", 0)), "barn": Links()}
    yield made
    for each in made.values():
        each.close()


@pytest.fixture
def opened(links, tmp_path):
    """Open the sending end, behind the last part that it has."""

    def open_(linger_s=0.0):
        outlet = Outlet("b", links["barn"], ("127.0.0.1", links["cloud"].port), linger_s=linger_s)
        return outlet.transaction(SCHEMA, Ledger(tmp_path / "notes", "b"))

    return open_


def numbers(start, stop):
    return Batch.of({"n": np.arange(start, stop)}, SCHEMA)


def received(links):
    """Return what comes over the bridge up to its end."""
    reader = Inlet("b", SCHEMA, links["cloud"]).open(lambda text, why: None)
    found = []
    while (batch := reader.read(1000, 30)) is not None:
        found += batch["n"].tolist() if batch.length else []
    reader.commit(reader.position)
    reader.close()
    return found


def test_a_part_that_was_taken_back_or_cut_off_is_not_sent_and_one_that_comes_again_is_known(links, opened):
    writer = opened()
    writer.write(numbers(0, 10))
    writer._outbound.gather()  # it may be in the log by then
    writer.rollback()
    writer.write(numbers(10, 20))
    writer.commit(0)
    writer.write(numbers(20, 30))
    writer._outbound.gather()
    writer.close()  # as where a process is killed amid a part
    again = opened()
    assert again.committed == 0  # so that micro-batch 0 is not written once more
    again.rollback()
    again.write(numbers(30, 40))
    again.advance(END)
    again.commit(1)
    assert received(links) == [*range(10, 20), *range(30, 40)]
    again.close()


def test_a_bridge_whose_stream_has_ended_is_left_once_all_is_there_though_its_process_was_killed(links, opened):
    writer = opened()
    writer.write(numbers(0, 10))
    writer.advance(END)
    writer.commit(0)
    writer.close()
    found = []
    taking = threading.Thread(target=lambda: found.extend(received(links)))
    again = opened(linger_s=60.0)
    taking.start()
    again.close()
    taking.join(PATIENCE_S)
    assert found == list(range(10))
    assert again.committed == 0
