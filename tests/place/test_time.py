"""Searches keep their time limit, and leave the world's random numbers alone."""

import dataclasses
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given

from headwater.place import (
    Budget,
    Model,
    best,
    brute,
    cloud_only,
    exact,
    exact_aggregate,
    exact_latency,
    strategy,
    violations,
)
from headwater.place.account import alternative
from headwater.place.candidates import candidates
from headwater.place.copies import with_copies
from headwater.place.dense import dense
from headwater.place.placement import Clock, slices
from headwater.place.recount import Recount
from headwater_bench.cases import ghosh
from properties import examples

from .strategies import cep_problem, queue_problem, seeds


class Ticking(Clock):
    """A clock on which every look takes a while, so that no test waits."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._looks = 0.0

    @property
    def spent_s(self) -> float:
        self._looks += 0.01
        return self._looks


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [
        ("brute-force", "brute", {}),
        ("genetic", "genetic", {"least": 10**9, "most": 10**9}),
        ("random", "random_search", {"trials": 10**9}),
        ("anneal", "anneal", {"steps": 10**9}),
    ],
)
def test_a_search_that_would_take_for_ever_ends_in_time(monkeypatch, name, module, options):
    monkeypatch.setattr(f"headwater.place.{module}.Clock", Ticking)
    problem = cep_problem(3, size=12)
    found = strategy(name)(problem, Budget(time_s=0.5), **options)
    assert found.status == "feasible"
    assert not found.proven
    assert not violations(problem, found.device.tolist())
    assert 0 < found.bound <= found.value or name != "brute-force"


def test_a_program_is_not_solved_that_took_all_the_time_to_write_down(monkeypatch):
    problem = queue_problem(3)
    hint = best.quick(problem, Budget())
    monkeypatch.setattr(exact_aggregate, "Clock", Ticking)
    monkeypatch.setattr("headwater.place.program.Program.run", lambda *given: pytest.fail("there was no time left"))
    found = exact_aggregate.solve(problem, Budget(time_s=0.1), hint=hint)
    assert found.device.tolist() == hint.device.tolist()
    assert not found.proven


def test_whether_a_thousand_copies_are_few_is_known_without_counting(monkeypatch):
    problem = with_copies(queue_problem(3), "s2", 1000)
    field = dense(problem, candidates(problem))
    monkeypatch.setattr(brute, "_partings", lambda *given: pytest.fail("numbers of hundreds of digits were counted"))
    assert brute.count(field, 3_000_001) == 3_000_001


def test_of_copies_on_one_device_one_is_asked_what_else_there_is(monkeypatch):
    found = best.quick(with_copies(queue_problem(3), "s2", 50), Budget())
    asked = []
    monkeypatch.setattr("headwater.place.account.violations", lambda *given: asked.append(1) or violations(*given))
    told = alternative(found)
    assert told["next_best"]["step"]
    used = len(set(found.device.tolist()))
    assert len(asked) <= 16 * (len(found.problem.steps) - 50 + used)


def test_quick_strategies_stop_when_time_is_up_and_give_what_they_have(monkeypatch):
    tried = []
    monkeypatch.setattr(best, "Clock", Ticking)
    monkeypatch.setattr(best, "GREEDY", [lambda *given: tried.append(1) or cloud_only.solve(*given)] * 1000)
    monkeypatch.setattr(best, "descend", lambda *given: pytest.fail("there was no time left"))
    found = best.quick(queue_problem(3), Budget(time_s=0.1))
    assert found.device is not None
    assert len(tried) < 20


@pytest.mark.parametrize("model", [Model.QUEUE, Model.ENGINE, Model.ROUND_ROBIN])
def test_what_a_device_bears_is_counted_once_however_many_steps_are_there(monkeypatch, model):
    """Each step asked all on its device: with a thousand copies a placement took seconds to verify."""
    asked = []
    plain = Recount.busy_of
    monkeypatch.setattr(Recount, "busy_of", lambda recount, step: asked.append(step) or plain(recount, step))
    problem = with_copies(dataclasses.replace(queue_problem(3), model=model), "s2", 200)
    recount = Recount(problem, [0] * len(problem.steps))
    recount.measure("critical")
    recount.measure("aggregate")
    assert len(asked) <= 4 * len(problem.steps)


def test_two_hundred_queries_are_not_written_down_when_there_is_no_time_for_it(monkeypatch):
    problem = ghosh.problem(ghosh.draw(200, 4, seed=1), 1000.0)
    monkeypatch.setattr(exact_latency, "build_s", lambda problem: 0.0)  # the guess is wrong, as on a busy machine
    monkeypatch.setattr(exact_latency, "Clock", Ticking)
    monkeypatch.setattr(exact_latency._Model, "_turns", lambda model, n: pytest.fail("the model was written down"))
    hint = exact._anneal(problem, Budget(time_s=60.0))
    found = exact_latency.solve(problem, Budget(time_s=1.0), hint=hint.device)
    assert found.status == "feasible"
    assert 0 < found.bound <= found.value


def test_slices_add_up_and_grow_while_they_are_short():
    cut = list(slices(Clock(Budget(time_s=60)), 100_000))
    assert sum(cut) == 100_000
    assert cut[2] > cut[1] > cut[0]
    assert list(slices(Clock(Budget(time_s=0)), 1000)) == [1, 64]


def test_the_first_round_in_which_a_search_is_compiled_is_not_counted():
    clock = Clock(Budget(time_s=5))
    rounds = slices(clock, 1000)
    next(rounds)
    clock._start -= 100  # it took long
    assert next(rounds) == 64
    assert 4 < clock.left_s <= 5


@given(seeds)
@examples(10)
def test_assignments_are_counted_as_they_are_walked(seed):
    problem = queue_problem(seed, n=5, pinned=np.array([2, -1, -1, -1, -1]))
    equal = dataclasses.replace(problem, net=dataclasses.replace(problem.net, lan_s=np.zeros(len(problem.net))))
    field = dense(equal, candidates(equal))
    seen = set()
    for place in product(range(len(field.device)), repeat=4):
        used: set[int] = set()
        for column in place:
            if field.twin[column] >= 0 and field.twin[column] not in used:
                break
            used.add(column)
        else:
            seen.add(place)
    assert brute.count(field, 10**9) == len(seen)
    assert brute.count(field, 10) == 10
    assert brute.solve(equal, Budget(time_s=60)).notes["tried"] == len(seen)


def test_an_answer_is_the_same_however_its_search_is_cut(monkeypatch):
    problem = cep_problem(3, size=8)
    whole = {name: strategy(name)(problem, Budget(time_s=600, seed=7)) for name in ("random", "anneal")}
    monkeypatch.setattr("headwater.place.placement._SLICE_S", 1e-9)
    for name, found in whole.items():
        options = {"random": {"trials": 300}, "anneal": {"steps": 300, "starts": 1}}[name]
        a = strategy(name)(problem, Budget(time_s=600, seed=7), **options)
        monkeypatch.setattr("headwater.place.placement._SLICE_S", 10.0)
        b = strategy(name)(problem, Budget(time_s=600, seed=7), **options)
        assert a.device.tolist() == b.device.tolist()
        assert found.value <= a.value * (1 + 1e-9)


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import numpy as np
from headwater.place import Budget, strategy
from headwater_bench.cases import ghosh
problem = ghosh.problem(ghosh.draw(5, 1, seed=3), 1000.0)
np.random.seed(11)
before = np.random.get_state()[1].tolist()
found = {}
for name, options in (("random", {"trials": 50}), ("anneal", {"steps": 50}), ("genetic", {"least": 5, "most": 5})):
    found[name] = strategy(name)(problem, Budget(seed=1), **options).value
assert np.random.get_state()[1].tolist() == before, "the global generator was used"
print(sorted(found.items()))
"""


def test_searches_leave_the_global_generator_alone_and_answer_alike_without_numba():
    without = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=False)
    assert without.returncode == 0, without.stderr
    with_it = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA.replace('sys.modules["numba"] = None', "")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert with_it.stdout == without.stdout
