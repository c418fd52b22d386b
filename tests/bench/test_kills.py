"""`headwater bench kills`: runs that are killed, at random and at chosen points, and what their sinks hold."""

import os
import signal

import pytest

from headwater_bench.experiments import kills, points, servers


@pytest.mark.parametrize("lanes", [1, 2])
def test_nothing_is_lost_and_nothing_twice(lanes):
    answer = kills.run(kills=4, parallel=1, lanes=lanes)
    assert answer["kills"] >= 4
    assert (answer["lost"], answer["twice"]) == (0, 0)


@pytest.mark.parametrize("point", ["checkpointing: its file is written", "text file: a part ends"])
def test_a_run_dies_at_a_point_and_the_next_goes_on(tmp_path, point):
    statuses = []
    for chosen in (points.Point(point, 2, after=True), None):
        child = os.fork()
        if child == 0:
            kills._child(tmp_path, 1, 1, servers.Servers(), chosen)
        statuses.append(os.waitpid(child, 0)[1])
    assert os.WTERMSIG(statuses[0]) == signal.SIGKILL
    assert statuses[1] == 0, (tmp_path / "error").read_text()


@pytest.mark.parametrize("name", sorted({**points.POINTS, **points.REMOTE}))
def test_each_point_is_a_call_that_there_is(name):
    owner, call = {**points.POINTS, **points.REMOTE}[name]
    assert callable(getattr(owner, call))
