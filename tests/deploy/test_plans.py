"""Placements over the API: the same figures as on the command line; by hand, rehearsed, and deployed."""

import json

import pytest

from headwater.cli.placement_options import Ask
from headwater.cli.planning import plans_of_flows, plans_of_plan
from headwater.deploy.api.routes import Answers
from headwater.deploy.coordinator.asking import NobodyError
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import NetError, PlacementError
from planning import FLOW, HOSTILE, placed, write_farm


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    write_farm(folder)
    return folder


@pytest.fixture(scope="module")
def plans(folder):
    return placed(folder, [])


def test_the_best_placement_has_the_figures_of_the_command_line(plans, folder, typed):
    _, out, _ = typed(
        "plan", folder / "tanks.py", folder / "farm.toml", "--profile", folder / "profile.json", "--rate", "1000",
        "--objective", "money then critical", "--why", "--json",
    )  # fmt: skip
    found, there = plans.search(FLOW, "farm", "money then critical"), json.loads(out)
    for name in ("measures", "placement", "value", "binding", "links", "devices", "paths"):
        assert found[name] == there[name], name
    assert [row["step"] for row in found["why"]] == [row["step"] for row in there["why"]]
    assert found["pinned"] == ["levels"]
    assert {"barn", "shed", "cloud"} == {offer["zone"] for offer in found["offers"]}


def test_a_placement_by_hand_is_accounted_for_also_where_it_breaks_a_limit(plans):
    best = plans.search(FLOW, "farm", "critical then devices")
    same = plans.tried(FLOW, "farm", "critical then devices", best["placement"])
    assert (same["measures"], same["broken"]) == (best["measures"], [])
    crowded = plans.tried(FLOW, "farm", "", best["placement"] | {"means": "barn"})
    assert "barn" in crowded["broken"][0]
    assert crowded["measures"]["devices"] >= 1
    with pytest.raises(PlacementError, match="cannot be: "):
        plans.rehearsed(FLOW, "farm", best["placement"] | {"means": "barn"}, 1.0)


def test_what_is_no_placement_is_told(plans):
    with pytest.raises(PlacementError, match="does not say where step 'levels' runs"):
        plans.tried(FLOW, "farm", "", {})
    where = plans.search(FLOW, "farm", "")["placement"]
    with pytest.raises(NetError, match="no device 'moon'"):
        plans.tried(FLOW, "farm", "", where | {"means": "moon"})
    with pytest.raises(PlacementError, match="no flow 'other' to plan with"):
        plans.search("other", "farm", "")
    with pytest.raises(PlacementError, match="did you mean 'money'"):
        plans.front(FLOW, "farm", "critical", "monney")


def test_the_front_is_between_the_ends_and_a_rehearsal_repeats(plans):
    front = plans.front(FLOW, "farm", "critical", "money")
    paid = [point["measures"]["money"] for point in front["points"]]
    takes = [point["measures"]["critical"] for point in front["points"]]
    assert len(paid) >= 2
    assert paid == sorted(paid, reverse=True)
    assert takes == sorted(takes)
    where = front["points"][0]["placement"]
    once = plans.rehearsed(FLOW, "farm", where, 2.0)
    assert once["latency_ms"]["p50"] > 0
    assert once["sinks"] == plans.rehearsed(FLOW, "farm", where, 2.0)["sinks"]


def test_what_is_deployed_is_a_plan_that_holds(folder):
    deployed = []
    plans = placed(folder, deployed)
    where = plans.search(FLOW, "farm", "")["placement"]
    assert plans.deployed(FLOW, "farm", "", where) == {"says": "it runs"}
    (plan,) = deployed
    assert dict(plan.placement) == where
    assert plan.strategy == "by hand"
    with pytest.raises(PlacementError, match="cannot be: "):
        plans.deployed(FLOW, "farm", "", where | {"means": "barn"})
    assert len(deployed) == 1


def test_a_page_asks_about_flows_and_nets_alone(typed):
    for words in (("--add", "barn=post"), ("--output", "plan.json")):
        code, _, err = typed("plan", "flow.py", "net.toml", "--web", *words)
        assert code == 2
        assert f"knows nothing of {words[0]}" in err
    code, _, err = typed("plan", "flow.py", "--web")
    assert code == 2
    assert "FLOW... NET..." in err


def test_a_flow_that_is_deployed_by_a_plan_is_planned_anew_and_its_ends_stay_where_they_are(tmp_path):
    write_farm(tmp_path)
    where = {"levels": "barn", "means": "shed", HOSTILE: "shed", "archive": "cloud"}
    named = {"flow": str(tmp_path / "tanks.py"), "net": str(tmp_path / "farm.toml"), "placement": where}
    costs = {"profile": str(tmp_path / "profile.json"), "rates_hz": 1000.0}
    (tmp_path / "plan.json").write_text(json.dumps(named | costs))
    plans = plans_of_plan(tmp_path / "plan.json", StateFolder(tmp_path / "state"))
    ((flow,), (net,)) = plans.choices()["flows"], plans.choices()["nets"]
    found = plans.search(flow["flow"], net, "devices then critical")
    assert {step: found["placement"][step] for step in ("levels", "archive")} == {"levels": "barn", "archive": "cloud"}
    assert set(found["pinned"]) == {"levels", "archive"}
    with pytest.raises(NobodyError):  # who looks after the flow is this very command: no other is started
        plans.deployed(flow["flow"], net, "", found["placement"])


def test_flows_are_planned_beside_the_sites_of_a_net_and_measured_when_that_is_first_asked(tmp_path):
    write_farm(tmp_path)
    asked = []

    class PlanningInput(Ask):
        def question(self, flows):
            asked.append(flows)
            return super().question(flows)

    flow = str(tmp_path / "tanks.py")
    beside = PlanningInput(rate=["1000"], profile=[tmp_path / "profile.json"], pin=["archive=cloud"])
    plans = plans_of_flows([flow], tmp_path / "farm.toml", beside, lambda plan: {"says": str(plan.flow)})
    assert plans.choices()["nets"] == ["farm"]
    assert asked == []
    placement = plans.search(flow, "farm", "")["placement"]
    assert placement["archive"] == "cloud"
    assert plans.deployed(flow, "farm", "", placement) == {"says": flow}
    assert asked == [[flow]]


def test_the_page_of_sites_opens_first_unless_plans_are_what_it_is_for():
    assert Answers(None, None).pages == ("sites",)
    assert Answers(None, object()).pages == ("sites", "plan")
    assert Answers(None, object(), "plan").pages == ("plan", "sites")
