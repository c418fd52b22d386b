"""Problems from flows: rates, sizes, times by class, and what is missing."""

import numpy as np
import pytest

from headwater import Flow, Profile, StepProfile, col, io
from headwater import net as nets
from headwater.errors import FlowError, PlacementError
from headwater.place import Budget, Constraints, strategy
from headwater.place.from_flow import problem_of

NET = nets.cloud_edge(1, 1, 2)


def tanks() -> Flow:
    flow = Flow("tanks")
    levels = flow.read("levels", io.Items([], {"tank": str, "height": float}))
    low, high = levels.split("sort", col.height < 100)
    low.write("alarms", io.Discard())
    high.union("both", low).write("archive", io.Discard())
    return flow


def profile(**changes) -> Profile:
    steps = {
        "levels": StepProfile(time_s=1.0, bytes_out=50, selectivity={"out": 1.0}),
        "sort": StepProfile(time_s=1e-5, selectivity={"true": 0.2, "false": 0.8}, bytes_out=50, state_bytes=77),
        "alarms": StepProfile(time_s=1e-6),
        "both": StepProfile(time_s=2e-6, bytes_out=50),
        "archive": StepProfile(time_s=3e-6),
    }
    ports = list(tanks().steps["sort"].outputs)
    steps["sort"] = StepProfile(
        time_s=1e-5, selectivity=dict(zip(ports, (0.2, 0.8), strict=True)), bytes_out=50, state_bytes=77
    )
    return Profile("tanks", "pi-2", {k: v for k, v in (steps | changes).items() if v is not None})


def test_rates_follow_selectivity_along_every_stream():
    problem = problem_of(tanks(), NET, profile(), 1000.0)
    rate = dict(zip(problem.steps, problem.rate_hz.tolist(), strict=True))
    assert rate == pytest.approx({"levels": 1000, "sort": 1000, "alarms": 200, "both": 1000, "archive": 1000})
    assert problem.memory_bytes[problem.step("sort")] == 77
    assert (problem.stream_bytes == 50).all()


def test_times_scale_with_the_speed_of_a_class_and_sources_cost_nothing():
    problem = problem_of(tanks(), NET, profile(), 1000.0)
    sort, source = problem.step("sort"), problem.step("levels")
    assert problem.service_s[sort, 0] == pytest.approx(1e-5)
    assert problem.service_s[sort, 2] == pytest.approx(1e-5 * 4.74 / 304.51)
    assert not problem.service_s[source].any()


def test_a_profile_per_class_is_taken_as_measured_and_other_classes_are_not_used():
    problem = problem_of(tanks(), NET, {"pi-3": profile()}, 1000.0)
    sort = problem.step("sort")
    assert problem.service_s[sort, 1] == 1e-5
    assert np.isinf(problem.service_s[sort, [0, 2]]).all()
    found = strategy("best")(problem, Budget(time_s=60))
    assert {int(NET.class_of[d]) for i, d in enumerate(found.device) if problem.solid[i]} == {1}


def test_a_flow_is_placed_with_its_constraints():
    constraints = Constraints(pins={"levels": "site-0/0", "archive": "cloud-0"}, together=(("sort", "both"),))
    problem = problem_of(tanks(), NET, profile(), {"levels": 500.0}, constraints=constraints)
    found = strategy("exact")(problem, Budget(time_s=60))
    assert found.status == "optimal"
    assert found.by_name["sort"] == found.by_name["both"]
    assert found.by_name["archive"] == "cloud-0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((profile(both=None), 1000.0), "step 'both' has no profile"),
        (
            (profile(), {"levels": 1.0, "levles": 2.0}),
            "a rate is given for 'levles'; the sources are 'levels'",
        ),
        ((profile(), {}), "source 'levels' has no rate"),
        (
            (Profile("tanks", "my-laptop", profile().steps), 10.0),
            "measured on 'my-laptop', which is no class of net",
        ),
        (({"pi-9": profile()}, 10.0), "class 'pi-9', which net"),
        ((profile(), float("nan")), "must be 0 or more; got nan"),
    ],
)
def test_what_is_missing_is_named(arguments, message):
    with pytest.raises(PlacementError, match=message):
        problem_of(tanks(), NET, *arguments)


def test_a_cyclic_flow_is_refused():
    good = tanks()
    steps = dict(good.steps)
    from dataclasses import replace

    loop = replace(steps["sort"], inputs=(replace(steps["sort"].inputs[0], step="both", port="out"),))
    with pytest.raises(FlowError, match="cycle"):
        problem_of(Flow.of_steps("loop", [steps["levels"], loop, *list(steps.values())[2:]]), NET, profile(), 10.0)
