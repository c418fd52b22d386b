"""What crosses between sites, and moves as they happen: as status tells it."""

import numpy as np
import pytest

from headwater import net as nets
from headwater.deploy.chart import MOST, Chart
from headwater.deploy.coordinator.moves import MoveAccount, Moves
from headwater.deploy.coordinator.stages import Stages
from headwater.deploy.coordinator.state import Deployment, Move
from headwater.deploy.coordinator.traffic import Traffic, link
from headwater.net.table import net_from_table


def test_a_rate_is_of_the_last_seconds_and_a_part_that_starts_again_counts_anew():
    traffic = Traffic()
    for second in range(20):
        traffic.note("tanks-1", float(second), {"means (sent)": 100 * second, "alarms": second})
    assert traffic.hz("means (sent)") == pytest.approx(100.0)
    (stream,) = traffic.of(["means"])
    assert stream == {"stream": "means", "records": 1900, "hz": 100.0}
    traffic.note("tanks-1", 20.0, {"means (sent)": 5})
    assert traffic.hz("means (sent)") == 0.0
    traffic.note("tanks-1", 21.0, {"means (sent)": 15})
    assert traffic.hz("means (sent)") == pytest.approx(10.0)
    traffic.note("tanks-2", 22.0, {})
    assert traffic.of(["means"]) == []


def test_a_site_whose_clock_was_set_back_is_told_of_anew():
    traffic = Traffic(60.0)
    for second in range(100):
        traffic.note("tanks-1", 1e9 + second, {"levels": 20 * second})
    for second in range(100):
        traffic.note("tanks-1", 5e8 + second, {"levels": 2000 + 20 * second})
        assert traffic.hz("levels") == pytest.approx(20.0 if second else 0.0)
        assert 0 <= traffic.told_s <= second
    assert len(traffic._samples) < 65


def farm():
    posts = [
        {"name": name, "x": x, "y": 0.0, "devices": [{"class": "pi-3"}]} for name, x in (("barn", 0.0), ("shed", 3.0))
    ]
    return net_from_table(
        {"name": "farm", "wan": {"kind": "coordinates", "base_s": 0.004, "s_per_unit": 0.001}, "zones": posts}, "farm"
    )


def test_a_link_tells_how_far_apart_its_sites_are_in_the_net():
    traffic = Traffic()
    traffic.note("tanks-1", 0.0, {"levels (sent)": 7})
    told = link("barn", "shed", ["levels", "alarms"], traffic, Chart.of(farm()))
    assert told["latency_s"] == pytest.approx(0.007)
    assert told["streams"] == [{"stream": "levels", "records": 7, "hz": 0.0}]
    assert link("barn", "nowhere", [], None, Chart.of(farm()))["latency_s"] is None


def test_a_chart_has_coordinates_where_the_net_has_and_nothing_of_a_net_too_large_to_draw():
    described = Chart.of(farm()).describe()
    assert [(place["name"], place["x"], place["cloud"]) for place in described["sites"]] == [
        ("barn", 0.0, False), ("shed", 3.0, False)
    ]  # fmt: skip
    many = nets.Net(
        "many",
        farm().classes,
        tuple(f"z{n}" for n in range(MOST + 1)),
        np.arange(MOST + 2),
        np.zeros(MOST + 1, np.uint16),
        np.zeros(MOST + 1),
        nets.Gateways(np.zeros(MOST + 1)),
    )
    assert Chart.of(many).describe() == {"name": "many", "sites": []}


def test_a_move_is_told_as_far_as_it_is():
    deployed = Deployment(id="1", name="tanks", flow="tanks.py", known=["barn", "cloud"], sites={"a": "barn"})
    moves = Moves()
    assert moves.describe(deployed) == []
    moves.begin(MoveAccount("2", 0.0, "hand", "move was asked for", {"a": ("barn", "cloud")}))
    deployed.moving = Move(id="2", sites={"a": "cloud"}, joined=[], listens=[])
    assert moves.describe(deployed)[0]["state"] == "preparing"
    deployed.moving.cut = True
    assert moves.describe(deployed)[0]["state"] == "standing still"
    deployed.moving = None
    assert moves.describe(deployed)[0]["state"] == "starting"
    stages = Stages()
    for stage, at_s in (("ahead", 2.0), ("stop", 2.125), ("start", 2.25)):
        stages.begin(1.0)
        stages.end(stage, at_s)
    moves.end(stages, "")
    moves.end(Stages(), "too late to be told")
    (told,) = moves.describe(deployed)
    assert (told["state"], told["gap_s"], told["undone"]) == ("done", 0.25, "")
    assert told["stages_s"] == {"ahead": 1.0, "stop": 0.125, "start": 0.125}
    moves.begin(MoveAccount("3", 1.0, "min-cost", "cheaper", {"a": ("cloud", "barn")}))
    moves.end(Stages(), "site 'barn' is away")
    assert moves.describe(deployed)[-1]["state"] == "came to nothing"
