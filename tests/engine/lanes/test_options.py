"""`headwater run --lanes`."""

import pytest

from headwater.cli.parameters import parse_lanes
from headwater.cli.run import run
from headwater.engine.lanes import child
from headwater.errors import RunError


def test_lanes_are_a_number_or_auto():
    assert parse_lanes(None) is None
    assert parse_lanes("auto") == "auto"
    assert parse_lanes("3") == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_other_numbers_of_lanes_are_refused(text):
    with pytest.raises(RunError, match=f"--lanes is 'auto' or a number of processes above 0; got '{text}'"):
        parse_lanes(text)


def test_lanes_are_not_for_spark():
    with pytest.raises(RunError, match="--lanes is the engine's and means nothing with --on spark"):
        run("riot:etl", on="spark", lanes="2")


def test_lanes_tell_that_they_wait_for_the_compiler(monkeypatch, caplog):
    waiting = iter([3, 3, 0, 0])
    monkeypatch.setattr(child, "_TELL_S", 0.0)
    monkeypatch.setattr("headwater.data.jit.service.waiting", lambda: next(waiting))
    child.check_that_it_can_fork()
    assert caplog.messages == ["lanes begin once kernels are compiled, once on this machine: 3 of them"]
