"""`headwater bench kills`: runs that are killed, at random and at chosen points, and what their sinks hold."""

import os
import signal
from importlib import import_module
from random import Random

import pytest

from headwater_bench.experiments import kills
from headwater_bench.kills import origins, points, rounds, targets
from headwater_bench.kills.case import RECORDS, Case, Target, records, undisturbed
from headwater_bench.kills.everything import Everything
from headwater_bench.kills.servers import Servers


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["1 instance", "2 lanes"])
def test_nothing_is_lost_and_nothing_twice(how):
    answer = kills.run(quick=True, kills=4, case=[how])
    assert answer["kills"] >= 4
    assert (answer["lost"], answer["twice"], answer["state"]) == (0, 0, 0)


@pytest.mark.parametrize("origin", [origins.Folder(), origins.Webhook()], ids=lambda each: each.name)
def test_a_flow_that_does_not_end_is_run_until_all_is_there(tmp_path, origin):
    played = rounds.play(Case(origin, targets.TextFile()), tmp_path / "round", Random(1))
    assert (played.discrepancy.lost, played.discrepancy.twice, played.discrepancy.state) == (0, 0, 0)


@pytest.mark.parametrize(
    "point", [("engine", "checkpointing: its file is written"), ("text", "text file: a part ends")]
)
def test_a_run_dies_at_a_point_and_the_next_goes_on(tmp_path, point):
    case, statuses = Everything(), []
    for chosen in (points.Point(point[0], point[1], 2, after=True), None):
        child = os.fork()
        if child == 0:
            rounds._run(case, tmp_path, chosen)
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])
    assert os.WTERMSIG(statuses[0]) == signal.SIGKILL
    assert statuses[1] == 0


@pytest.mark.parametrize(
    ("owner", "call"), [each for group in points.POINTS.values() for each in group.values()], ids=str
)
def test_each_point_is_a_call_that_there_is(owner, call):
    if ".kafka." in owner:
        pytest.importorskip("confluent_kafka")
    if ".postgres." in owner:
        pytest.importorskip("psycopg")
    home, _, kind = owner.partition(":")
    assert callable(getattr(getattr(import_module(home), kind), call))


def test_every_case_has_points_that_there_are():
    assert {name for case in kills.cases(Servers()) for name in case.points} <= points.POINTS.keys()


class Given(Target):
    name = "given"

    def __init__(self, rows):
        self._rows = rows

    def sink(self, folder):
        raise NotImplementedError

    def rows(self, folder):
        return self._rows


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda rows: rows[:-1], {"lost": 1, "state": 1}),
        (lambda rows: [*rows, rows[0]], {"twice": 1}),
        (lambda rows: [*rows[:-1], (*rows[-1][:2], 0)], {"lost": 1, "twice": 1}),
    ],
    ids=["a record is lost", "a record is there twice", "a sum is wrong"],
)
def test_what_is_wrong_in_the_end_is_found(tmp_path, monkeypatch, change, wrong):
    rows = undisturbed()
    state = {}
    for key, n, _ in change(rows) if "state" not in wrong else rows:
        state[key] = state.get(key, 0) + n
    monkeypatch.setattr("headwater_bench.kills.case.state_of", lambda folder: state)
    found = Case(origins.Generator(), Given(change(rows))).judge(tmp_path)
    assert (found.lost, found.twice, found.state) == tuple(wrong.get(name, 0) for name in ("lost", "twice", "state"))
    assert found.why


def test_the_records_are_those_that_are_reckoned_with():
    assert [(row["key"], row["n"]) for row in records()] == [(key, n) for key, n, _ in undisturbed()]
    assert len(undisturbed()) == RECORDS
