"""A run that goes from the engine to Spark and back gives what one undisturbed run does: nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import moved_flow
from headwater import engine
from headwater import spark as on_spark
from headwater.deploy.takeover import take_over
from headwater.engine.checkpoint.listing import listed
from headwater.errors import RunError
from headwater.spark.checkpoint import Checkpoint
from moved_flow import built, write_inputs, written

RECORDS = 6000
RATE = 50.0  #: so slow that no machine is at the end before it is stopped
PATIENCE_S = 120


def killed_on_the_engine(folder, checkpoint):
    """Run in a child until some checkpoints are there that have state, and kill it."""
    child = subprocess.Popen([sys.executable, moved_flow.__file__, folder, checkpoint, str(2 * RATE)])
    try:
        wait_for(lambda: read_of(checkpoint) >= 100, child)
    finally:
        child.kill()
        child.wait()


def read_of(checkpoint):
    """Return how many records of a source are in the last checkpoint that can be read."""
    if not any(checkpoint.glob("*.checkpoint")):
        return 0
    return max((each.positions["levels"][0] or 0 for each in listed(checkpoint) if each.restorable), default=0)


def wait_for(condition, child=None):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert child is None or child.poll() is None, "it has ended"
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


def stopped_on_spark(flow, checkpoint):
    """Run until some micro-batches are done, and stop."""
    running = on_spark.start(flow, checkpoint=checkpoint)
    done = Checkpoint(checkpoint)
    wait_for(lambda: (done.committed() >= 1 and running.sample().records_in > 100) or running.done.is_set())
    running.stop()
    report = running.wait(PATIENCE_S)
    assert 0 < report.last.records_in < 2 * RECORDS
    return report


def test_a_flow_killed_on_the_engine_goes_on_on_spark_and_back(spark, tmp_path):
    moving, whole = tmp_path / "moving", tmp_path / "whole"
    for folder in (moving, whole):
        folder.mkdir()
        write_inputs(folder, RECORDS)
    engine.run(built(whole, 1e9))
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    killed_on_the_engine(moving, first)
    there = take_over(built(moving, RATE), first, second, buckets=3)
    assert there.on == "spark"
    assert there.positions["levels"] >= 100
    stopped_on_spark(built(moving, RATE), second)
    back = take_over(built(moving, 1e9, parallel=2), second, third)
    assert back.on == "engine"
    assert there.positions["levels"] < back.positions["levels"] < RECORDS
    engine.run(built(moving, 1e9, parallel=2), checkpoint=third)
    found, expected = written(moving), written(whole)
    for name, rows in expected.items():
        assert rows == found[name], name
    for origin, other in ((first, second), (second, third)):
        with pytest.raises(RunError, match=f"checkpoint {origin} was moved to {other} at .*go on from there"):
            engine.run(built(moving, 1e9), checkpoint=origin) if origin == first else on_spark.run(
                built(moving, 1e9), checkpoint=origin
            )
