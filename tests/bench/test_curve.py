"""The highest sustained rate is one below which every rate was kept; a footprint counts what a base install needs."""

from __future__ import annotations

import random

import pytest

from headwater import engine
from headwater.errors import RunError
from headwater_bench.experiments import curve, sustained
from headwater_bench.experiments.curve import LOADS, is_sustained, rises, run
from headwater_bench.experiments.descent import DOWN, VISITS, Found, descended
from headwater_bench.experiments.footprint import install_bytes
from headwater_bench.experiments.surroundings import Watch
from headwater_bench.experiments.sustained import (
    FLOWS,
    Point,
    measured,
    together,
)
from headwater_bench.experiments.warmed import Warmed, copies_of, when_done_with
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.sources import generated, repeated
from headwater_bench.riot.stats import stats


def point(**fields):
    usual = {"flow": "etl", "on": "engine", "load": 0.5, "offered_hz": 100.0, "out_hz": 100.0, "p50_ms": 1, "p99_ms": 2}
    return Point(**{**usual, "cpu_us": 3.0, **fields})


def searched(is_kept, full_hz=100_000.0, **named):
    return descended(is_kept, lambda: full_hz, **named)


@pytest.mark.parametrize("limit", [0.7, 0.83, 0.9, 1.0, 1.3])
def test_the_search_ends_close_below_the_first_rate_that_is_not_kept(limit):
    found = searched(lambda rate_hz: rate_hz <= limit * 100_000)
    assert DOWN * limit * 100_000 <= found.rate_hz <= limit * 100_000
    assert found.is_sure
    assert found.visits <= VISITS


@pytest.mark.parametrize("seed", range(20))
def test_bad_and_good_moments_move_what_is_found_by_a_few_steps(seed):
    """A machine of 100,000/s that one time in ten is far slower, and one in ten a fifth faster."""
    chance = random.Random(seed)
    found = searched(lambda rate_hz: rate_hz <= 100_000 * chance.choice([0.2, *[1.0] * 8, 1.2]))
    assert 80_000 < found.rate_hz < 120_000


class Shared:
    """A machine of 100,000/s that others slow down to two fifths during some visits, full speed included."""

    def __init__(self, *spans):
        self.spans, self.visit = spans, 0

    def speed_hz(self):
        self.visit += 1
        return 40_000 if any(first <= self.visit < last for first, last in self.spans) else 100_000

    def is_kept(self, rate_hz):
        return rate_hz <= self.speed_hz()

    def full_speed(self):
        return 1.1 * self.speed_hz()


@pytest.mark.parametrize("began", range(1, 25))
@pytest.mark.parametrize("length", [3, 6, 10])
def test_others_that_come_and_go_leave_what_is_found_plausible(began, length):
    """Ten visits are 17 seconds of the demo. A search that only goes down had ended at half the truth and less."""
    machine = Shared((began, began + length))
    found = descended(machine.is_kept, machine.full_speed)
    assert found.is_sure
    assert 75_000 < found.rate_hz <= 100_000


def test_a_slow_full_speed_at_first_is_asked_about_again():
    machine = Shared((1, 12))
    assert descended(machine.is_kept, machine.full_speed).rate_hz > 90_000


def test_others_that_stay_make_the_search_end_unsure():
    asked = []

    def is_kept(rate_hz):
        asked.append(rate_hz)
        return rate_hz <= 30_000

    found = searched(is_kept)
    assert not found.is_sure
    assert len(asked) == found.visits <= VISITS
    assert min(asked[:20]) > 60_000  # it tried all that is plausible more than once before it went below


def test_where_no_rate_is_kept_the_search_ends_with_none():
    found = searched(lambda rate_hz: False)
    assert (found.rate_hz, found.is_sure) == (0, False)
    assert found.visits <= VISITS
    assert searched(lambda rate_hz: True, 0.0) == (0, 0, 0, False)
    assert searched(lambda rate_hz: rate_hz < 0.5, 1.0).rate_hz == 0


@pytest.mark.parametrize("limit", [1, 2, 5, 9])
def test_no_more_visits_are_made_than_allowed(limit):
    found = searched(lambda rate_hz: rate_hz <= 90_000, limit=limit)
    assert found.visits == limit
    assert not found.is_sure
    assert found.rate_hz <= 90_000


@pytest.mark.parametrize("valley", [0.88, 0.8, 0.75])
def test_a_rate_is_not_found_above_a_valley(valley):
    """A rate above which others are kept, but which is not kept itself, bounds what is sustained."""
    found = searched(lambda rate_hz: rate_hz <= 95_000 and not valley * 0.87 <= rate_hz / 95_000 <= valley)
    assert 0 < found.rate_hz <= valley * 95_000


class Machine:
    """In the place of a measurement: keeps rates up to a limit, and notes what was asked of it."""

    def __init__(self, limit_hz):
        self.limit_hz, self.asked = limit_hz, []

    def __call__(self, name, on, load, rate_hz, subject, seconds):
        self.asked.append((name, load))
        return point(flow=name, on=on, load=load, offered_hz=rate_hz, out_hz=min(rate_hz, self.limit_hz))


@pytest.fixture
def machine(monkeypatch):
    made = Machine(85.0)
    monkeypatch.setattr(curve, "measured", made)
    monkeypatch.setattr(curve, "compile_kernels", lambda subject: None)
    monkeypatch.setattr(curve, "highest_sustained", lambda *given: Found(100.0, 110.0, 9, is_sure=True))
    return made


def test_a_curve_below_which_a_rate_was_not_kept_is_measured_again_from_a_lower_one(machine):
    answer = run(flows=["etl", "pred"])
    assert 85 * DOWN < answer["etl"]["highest_hz"] <= 85
    assert answer["etl"]["delivered_min"] == 1
    assert answer["etl"]["attempts"] == answer["pred"]["attempts"] == 4
    assert answer["etl"]["beyond"] >= 1


def test_a_curve_is_not_measured_again_for_ever_and_tells_what_was_not_delivered(machine):
    machine.limit_hz = 10.0
    answer = run(flows=["etl"])
    assert answer["etl"]["attempts"] == 6
    assert answer["etl"]["delivered_min"] < 0.99


def test_neighbouring_loads_are_measured_one_right_after_the_other_and_flows_take_turns(machine):
    machine.limit_hz = 1e9
    run(flows=["etl", "pred"])
    up, down = list(LOADS), list(reversed(LOADS))
    assert [load for _, load in machine.asked] == [*up, *up, *down, *down, *up, *up]
    names = [name for name, _ in machine.asked]
    assert names == (["etl"] * 12 + ["pred"] * 12) * 3


def test_a_curve_is_written_with_all_visits_and_drawn(machine, tmp_path):
    run(flows=["etl"], on=["engine", "threads"], output=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"curve.csv", "visits.csv", "curve.png"}
    assert len((tmp_path / "curve.csv").read_text().splitlines()) == 1 + 2 * 12
    assert len((tmp_path / "visits.csv").read_text().splitlines()) == 1 + 2 * 12 * 3


def test_a_curve_is_sustained_when_all_up_to_the_highest_was_kept():
    assert is_sustained({0.9: [point()], 1.0: [point()], 1.2: [point(out_hz=10.0)]})
    assert not is_sustained({0.9: [point()], 1.0: [point(out_hz=80.0)]})
    assert not is_sustained({0.5: [point(), point(out_hz=80.0)], 0.9: [point()]})


def test_a_measurement_knows_what_went_on_beside_it():
    import gc

    watch = Watch()
    gc.collect()
    around = watch.report()
    assert around.gc_ms > 0
    assert around.others >= 0
    assert around.stolen >= 0
    assert watch._heard not in gc.callbacks


def test_what_was_left_in_queues_is_not_taken_for_lost():
    running = engine.start(etl(generated("CITY", 1e9)))
    before = running.sample()
    while sum(step.queue for step in running.sample().steps.values()) < 1_000:  # not while kernels are compiled
        assert running.wait(0.01) is None
    running.abort()  # observations are in queues, six of them for each message
    report = running.wait()
    assert report.left
    with pytest.raises(AssertionError, match="left"):
        copies_of(report, before)


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_results_of_windows_that_are_still_filling_are_not_missed(on):
    texts = messages(stream("CITY"), 0, 128)
    source = Warmed(repeated(texts, 1e6, count=1280 + 50), 1280)
    running = engine.start(stats(source), on=on)
    warm = when_done_with(running, 1280)
    source.go.set()
    report = running.wait()
    assert report.last.records_in == 1330
    assert copies_of(report, warm) == 15  # five observations, three results of each
    assert sum(warm.records_out.values()) < 15 * 1280  # of which the first nine of a sensor have two


def test_a_flow_that_ends_before_it_is_warm_is_told():
    running = engine.start(etl(generated("CITY", 1e9, count=10)))
    with pytest.raises(AssertionError, match="before it was warm, at 10 of 20"):
        when_done_with(running, 20)


def test_a_point_is_of_a_warm_flow_at_its_rate(monkeypatch):
    monkeypatch.setattr(sustained, "ROUND", 128)
    found = measured("stats", "engine", 0.1, 500.0, FLOWS["stats"], 0.3)
    assert (found.flow, found.on, found.load, found.offered_hz) == ("stats", "engine", 0.1, 500.0)
    assert found.out_hz >= 0
    assert found.cpu_us > 0
    assert 0 <= found.p50_ms <= found.p99_ms


def test_visits_are_put_together_so_that_one_bad_moment_costs_what_it_did_not_deliver_alone():
    visits = [point(), point(out_hz=70.0, p99_ms=900.0, cpu_us=9.0), point()]
    found = together(visits)
    assert (found.out_hz, found.p99_ms, found.cpu_us) == (90.0, 2, 3.0)


def test_a_flow_that_there_is_not_is_told():
    with pytest.raises(RunError, match=r"there is no flow 'elt'.*did you mean 'etl'"):
        run(flows=["elt"])
    with pytest.raises(RunError, match=r"there is no runner .thread.*did you mean .threads.\?"):
        run(on=["thread"])


def test_a_rate_is_kept_when_nearly_all_of_it_comes_out_in_time():
    assert point(out_hz=99.5).is_kept
    assert not point(out_hz=98).is_kept
    assert not point(p99_ms=500).is_kept


def test_costs_that_fall_with_load_do_not_rise():
    assert max(rises([[30.0, 20.0, 10.0]])) < 1
    assert list(LOADS) == sorted(LOADS)
    assert len(LOADS) == 12


def test_a_machine_that_is_slow_for_one_visit_makes_no_record_dearer():
    assert max(rises([[30.0, 20.0, 10.0], [60.0, 40.0, 20.0], [30.0, 50.0, 10.0]])) < 1
    assert max(rises([[30.0, 36.0, 10.0]] * 2 + [[30.0, 20.0, 10.0]])) == 1.2


def test_an_install_is_at_least_what_it_is_built_on():
    # what numba brings counts with it, numpy among it
    assert install_bytes("headwater") > install_bytes("numba") > install_bytes("numpy") > 20e6
