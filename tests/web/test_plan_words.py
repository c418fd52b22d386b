"""What the account of a placement says, in words."""

from headwater.web.board import zones_of
from headwater.web.plan_words import binding_of, changes, reasons_of, row_of, verdict


def placement(**more):
    measures = {"critical": 0.0125, "aggregate": 0.0125, "wan": 2048.0, "energy": 0.0, "money": 0.35, "devices": 2}
    told = {
        "status": "optimal",
        "proven": True,
        "objective": "critical then devices",
        "measures": measures,
        "broken": [],
    }
    told |= {"placement": {"a": "barn", "b": "cloud"}, "binding": [], "links": [], "why": [], "pinned": ["a"]}
    return told | more


def test_a_placement_is_told_with_what_binds_and_one_that_cannot_be_with_why():
    binds = [{"kind": "cpu", "device": "barn", "share": 0.95, "binds": True}]
    says, _, grave = verdict("Cheapest", placement(binding=binds), None)
    assert (says, grave) == (
        "Cheapest: 12.5 ms on the slowest path, 0.35 an hour, 2 devices. What binds: cpu of barn.", False
    )  # fmt: skip
    assert binding_of(placement(binding=binds)) == [("cpu", ["cpu", "barn", "95 %", "it binds"])]
    says, _, grave = verdict("By hand", placement(broken=["barn is full", "and small"]), None)
    assert (says, grave) == ("By hand cannot be: barn is full (and 1 more).", True)
    assert row_of("By hand", placement(broken=["barn is full"]))[1] == "breaks a limit"


def test_what_a_change_by_hand_does_is_told_measure_by_measure():
    before = placement()
    after = placement(
        placement={"a": "barn", "b": "shed"}, measures=before["measures"] | {"critical": 0.02, "money": 0.5}
    )
    assert changes(before, after) == "b: cloud → shed. slowest path 12.5 ms → 20 ms, money 0.35 an hour → 0.5 an hour."
    assert changes(before, before) == ""


def test_reasons_are_in_the_unit_of_what_is_minimised():
    forbidden = [{"device": "shed", "value": 0.01, "worse_by": -0.002, "because": "it is closed"}]
    rows = [
        {"step": "a", "device": "barn", "pinned": True, "next_best": None, "forbidden": [], "tried": 0},
        {"step": "b", "device": "cloud", "pinned": False, "tried": 2, "forbidden": forbidden}
        | {"next_best": {"device": "barn", "value": 0.02, "worse_by": 0.0075, "because": ""}},
    ]
    assert [row for _, row in reasons_of(placement(why=rows))] == [
        ["a", "barn", "it is pinned there", ""],
        ["b", "cloud", "barn, worse by 7.5 ms", "shed would be better by 2 ms, but it is closed"],
    ]


def test_on_the_board_devices_with_steps_come_first_and_what_moved_is_marked():
    devices = [{"device": "cloud", "utilisation": 0.95, "steps": ["a", "b"]}]
    offers = [
        {"device": name, "zone": name, "class": "post", "cloud": name == "cloud"} for name in ("attic", "barn", "cloud")
    ]
    zones = zones_of(placement(devices=devices, offers=offers), {"a": "cloud", "b": "barn"})
    assert [zone["name"] for zone in zones] == ["cloud", "attic", "barn"]
    (host,) = zones[0]["devices"]
    assert (host["full"], host["load"]) == (True, "95 % busy")
    assert [step["mark"] for step in host["steps"]] == [" (pinned)", " (moved)"]
