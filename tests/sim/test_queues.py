"""The queueing simulator against theory, and against itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import net as nets
from headwater import sim
from headwater.errors import RunError
from headwater.place.problem import Model, Problem
from headwater.sim.lindley import merge, serve
from properties import examples

NET = nets.cloud_edge(1, 1, 2)


def flow(service, edges, rates, stream_hz, *, device_bytes=0.0, model=Model.QUEUE) -> Problem:
    n, (tail, head) = len(service), np.array(edges).T
    return Problem(
        "flow",
        NET,
        model,
        tuple(f"s{i}" for i in range(n)),
        np.repeat(np.array(service)[:, None], 3, axis=1),
        np.array(rates, float),
        tail,
        head,
        np.array(stream_hz, float),
        np.full(len(tail), float(device_bytes)),
        np.full(n, -1),
    )


def agreement(problem, device, seconds, **options):
    report = sim.run_queues(problem, np.array(device), sim.QueueOptions(seconds=seconds, **options))
    return {name: row["simulated_s"] / row["predicted_s"] for name, row in report.extra["sinks"].items()}, report


def test_an_m_m_1_queue_agrees_with_theory_at_ten_million_events():
    problem = flow([0, 0.7e-3], [(0, 1)], [1000, 1000], [1000])
    ratio, report = agreement(problem, [0, 0], 5_000.0)
    assert report.extra["events"] >= 9_900_000
    assert ratio["s1"] == pytest.approx(1, abs=0.02)


def test_a_chain_of_queues_agrees_with_theory():
    problem = flow([0, 0.5e-3, 0.6e-3, 0.3e-3], [(0, 1), (1, 2), (2, 3)], [1000] * 4, [1000] * 3)
    ratio, _ = agreement(problem, [0] * 4, 1_700.0)
    assert ratio["s3"] == pytest.approx(1, abs=0.02)


def test_a_fork_and_a_join_agree_with_theory():
    # half of the records go each way and meet again: a Jackson network
    edges, half = [(0, 1), (0, 2), (1, 3), (2, 3)], [500, 500, 500, 500]
    problem = flow([0, 1e-3, 1.4e-3, 0.6e-3], edges, [1000, 500, 500, 1000], half)
    ratio, _ = agreement(problem, [0] * 4, 1_700.0)
    assert ratio["s3"] == pytest.approx(1, abs=0.02)


def test_a_link_adds_its_queue_and_its_latency():
    problem = flow([0, 0], [(0, 1)], [5_500, 5_500], [5_500], device_bytes=1_300)
    device = [1, 0]
    ratio, report = agreement(problem, device, 300.0)
    assert ratio["s1"] == pytest.approx(1, abs=0.02)
    floor = float(NET.latency_s(1, 0))
    assert report.extra["sinks"]["s1"]["simulated_s"] > floor + 200e-6


def test_constant_service_waits_half_as_long_as_exponential():
    problem = flow([0, 0.8e-3], [(0, 1)], [1000, 1000], [1000])
    _, report = agreement(problem, [0, 0], 3_000.0, service=sim.Service.CONSTANT)
    waiting = report.extra["sinks"]["s1"]["simulated_s"] - 0.8e-3
    assert waiting == pytest.approx(0.8 * 0.8e-3 / (2 * 0.2), rel=0.03)  # Pollaczek-Khinchine


def test_evenly_spaced_records_and_constant_service_never_wait():
    problem = flow([0, 0.8e-3], [(0, 1)], [1000, 1000], [1000])
    report = sim.run_queues(
        problem,
        np.array([0, 0]),
        sim.QueueOptions(seconds=5.0, arrivals=sim.Constant(), service=sim.Service.CONSTANT),
    )
    assert report.extra["sinks"]["s1"]["simulated_s"] == pytest.approx(0.8e-3)
    assert report.last.records_in == 5_000


def test_recorded_arrivals_are_played_as_they_were():
    problem = flow([0, 1e-3], [(0, 1)], [1000, 1000], [1000])
    moments = np.array([0.5, 0.5, 0.9])
    report = sim.run_queues(
        problem,
        np.array([0, 0]),
        sim.QueueOptions(1.0, arrivals=sim.RecordedArrivals(moments), service=sim.Service.CONSTANT, warm_up=0.0),
    )
    assert report.extra["sinks"]["s1"]["simulated_s"] == pytest.approx((1e-3 + 2e-3 + 1e-3) / 3)
    with pytest.raises(RunError, match="in order"):
        sim.RecordedArrivals(np.array([2.0, 1.0]))


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    problem = flow([0, 0.7e-3], [(0, 1)], [1000, 1000], [1000])
    a, b, c = (sim.run_queues(problem, np.array([0, 0]), sim.QueueOptions(5.0, seed=s)).to_json() for s in (1, 1, 2))
    assert a == b
    assert a["extra" if "extra" in a else "sinks"] != c["extra" if "extra" in c else "sinks"]


def test_thinning_and_doubling_keep_the_rates_of_streams():
    problem = flow([0, 1e-5, 1e-5], [(0, 1), (1, 2)], [1000, 2500, 250], [2500, 250])
    report = sim.run_queues(problem, np.array([0] * 3), sim.QueueOptions(100.0))
    assert report.last.steps["s1"].records_in == pytest.approx(250_000, rel=0.02)
    assert report.last.steps["s2"].records_in == pytest.approx(25_000, rel=0.05)


def test_round_robin_takes_one_turn_of_all_steps_on_the_device():
    problem = flow([0, 1e-4, 2e-4], [(0, 1), (1, 2)], [10, 10, 10], [10, 10], model=Model.ROUND_ROBIN)
    report = sim.run_queues(problem, np.array([0] * 3), sim.QueueOptions(200.0, arrivals=sim.Constant()))
    assert report.extra["sinks"]["s2"]["simulated_s"] == pytest.approx(2 * 3e-4, rel=1e-6)


@pytest.mark.parametrize("service", list(sim.Service))
def test_steps_that_share_a_processor_slow_each_other_down_as_predicted(service):
    # three steps of 2 ms at 100 records/s fill 60 % of a device, so that each takes 5 ms; planned apart they would take 2.5
    problem = flow([0, 2e-3, 2e-3, 2e-3], [(0, 1), (1, 2), (2, 3)], [100] * 4, [100] * 3, model=Model.SHARED)
    ratio, report = agreement(problem, [1] * 4, 400.0, service=service)
    assert report.extra["sinks"]["s3"]["predicted_s"] == pytest.approx(15e-3)
    assert ratio["s3"] == pytest.approx(1, abs=0.04)
    assert report.last.steps["s2"].records_in == report.last.records_in


def test_a_record_that_comes_back_to_a_device_shares_it_again():
    edges = [(0, 1), (1, 2), (2, 3), (1, 3)]
    rates, stream_hz = [200, 200, 100, 200], [200, 100, 100, 100]
    problem = flow([0, 1e-3, 3e-3, 2e-3], edges, rates, stream_hz, device_bytes=800, model=Model.SHARED)
    ratio, _ = agreement(problem, [1, 1, 2, 1], 200.0)
    assert ratio["s3"] == pytest.approx(1, abs=0.04)


def test_what_the_engine_does_is_not_played_as_queues():
    problem = flow([0, 1e-3], [(0, 1)], [100, 100], [100], model=Model.ENGINE)
    with pytest.raises(RunError, match="play it with run_engine"):
        sim.run_queues(problem, np.array([0, 0]))


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), max_size=40))
@examples(80)
def test_nobody_leaves_before_he_came_was_served_and_his_forerunner_left(records):
    arrive = np.array(sorted(a for a, _ in records))
    service = np.array([s for _, s in records])
    leave = np.empty(len(records))
    busy = serve(arrive, service, leave)
    assert (leave >= arrive + service - 1e-12).all()
    assert (np.diff(leave) >= -1e-12).all()
    assert busy == pytest.approx(service.sum())


@given(st.lists(st.floats(0, 9), max_size=20), st.lists(st.floats(0, 9), max_size=20))
@examples(60)
def test_merging_keeps_every_record_in_order_of_time(a, b):
    a, b = np.array(sorted(a)), np.array(sorted(b))
    times, born = merge(a, a + 0.5, b, b + 0.5)
    assert times.tolist() == sorted([*a.tolist(), *b.tolist()])
    assert np.allclose(born, times + 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0.0}, "longer than 0 s"),
        ({"warm_up": 1.0}, "from 0 to below 1"),
        ({"seconds": float("nan")}, "0 s"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(RunError, match=message):
        sim.QueueOptions(**options)
