"""What the dashboard says of a sample, in figures and in words."""

import pytest

from headwater.web.reading import steps_now, streams_now, verdict

GRAPH = {
    "flow": "tanks",
    "steps": [
        {"name": "levels", "role": "source", "parallel": 1, "column": 0},
        {"name": "sound", "role": "step", "parallel": 1, "column": 1},
        {"name": "out", "role": "sink", "parallel": 1, "column": 2},
    ],
    "streams": [
        {"from": "levels", "port": "out", "to": "sound"},
        {"from": "sound", "port": "out", "to": "out"},
    ],
}


def step(name, **figures):
    usual = {"in": 1000, "out": 1000, "queue": 0, "utilisation": 0.1, "cost_us": 1.0, "dead_letters": 0, "late": 0}
    return {"name": name, **usual, **figures}


def sample(held_s=0.0, at_s=2.0, **by_step):
    steps = [step(name, **by_step.get(name, {})) for name in ("levels", "sound", "out")]
    return {"last": {"at_s": at_s, "backpressure_s": held_s, "steps": steps}, "total": {"steps": steps}}


def said(cores=1.0, **given):
    return verdict(steps_now(GRAPH, sample(**given)), cores)


def test_rates_are_those_of_the_time_since_the_sample_before():
    levels, sound, _ = steps_now(GRAPH, sample(sound={"in": 1000, "out": 400}))
    assert (levels.out_hz, sound.in_hz, sound.out_hz) == (500, 500, 200)
    assert streams_now(GRAPH, sample(sound={"in": 1000, "out": 400})) == [500, 200]


def test_a_stream_of_one_output_of_several_has_the_rate_of_that_output():
    graph = {**GRAPH, "streams": [{"from": "sound", "port": "late", "to": "out"}]}
    assert streams_now(graph, sample(sound={"outputs": {"late": 10}})) == [5]


def test_shares_of_a_step_add_up_to_the_whole_time():
    sound = steps_now(GRAPH, sample(sound={"utilisation": 0.8, "cost_us": 1000.0}))[1]
    assert sound.busy == pytest.approx(0.5)
    assert sound.waiting == pytest.approx(0.3)
    assert sound.busy + sound.waiting + sound.idle == pytest.approx(1)
    assert sound.state == "busy"


def test_a_step_whose_records_wait_for_a_worker_is_waiting_not_busy():
    assert steps_now(GRAPH, sample(sound={"utilisation": 0.9, "cost_us": 10.0}))[1].state == "waiting"


def test_a_source_that_is_held_back_says_so():
    levels = steps_now(GRAPH, sample(held_s=1.0))[0]
    assert (levels.state, levels.held) == ("held back", 0.5)


def test_the_bottleneck_is_the_step_that_is_always_busy():
    found = said(held_s=1.6, sound={"cost_us": 1900.0, "utilisation": 1.0, "queue": 9000})
    assert found.step == "sound"
    assert found.grave
    assert "bottleneck" in found.summary
    assert "80 %" in found.summary
    assert "lanes" in found.advice


def test_a_machine_that_is_busy_with_something_else_is_not_the_fault_of_a_step():
    found = said(cores=0.1, held_s=1.6, sound={"cost_us": 1900.0, "utilisation": 1.0})
    assert found.summary.startswith("Something else keeps this machine busy")
    assert "0.10 of one" in found.summary


def test_workers_that_wait_for_pythons_lock_are_not_kept_from_a_processor_by_others():
    found = said(cores=0.9, held_s=1.6, sound={"cost_us": 1900.0, "utilisation": 1.0}, out={"cost_us": 1400.0})
    assert found.summary.startswith("Step sound is the bottleneck")


def test_a_worker_at_its_limit_is_named_where_no_single_step_is():
    found = said(held_s=1.0, sound={"cost_us": 1000.0}, out={"cost_us": 900.0})
    assert found.summary.startswith("The worker is at its limit")
    assert found.step == "sound"


def test_a_sink_that_waits_for_something_else_is_no_matter_of_the_processor():
    found = said(held_s=1.0, out={"queue": 5000, "cost_us": 2.0})
    assert found.step == "out"
    assert "outside the flow" in found.advice


def test_a_flow_with_room_says_how_much():
    found = said(sound={"cost_us": 200.0})
    assert not found.grave
    assert found.summary.startswith("Nothing is held back")
    assert "times as much" in found.advice


def test_a_flow_that_nothing_comes_into_says_so_and_one_that_hangs_too():
    nothing = {name: {"in": 0, "out": 0} for name in ("levels", "sound", "out")}
    assert said(**nothing).summary == "Nothing comes in."
    hangs = said(**{**nothing, "sound": {"in": 0, "out": 0, "queue": 10}})
    assert hangs.grave
    assert "Nothing moves" in hangs.summary


def test_a_step_that_the_sample_does_not_know_yet_is_idle():
    empty = {"last": {"at_s": 0.0, "backpressure_s": 0.0, "steps": []}, "total": {"steps": []}}
    assert [each.state for each in steps_now(GRAPH, empty)] == ["idle"] * 3
