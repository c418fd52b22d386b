"""What a coordinator says, in words."""

from headwater.web.site_words import moves_of, verdict


def document(sites=(), **flow):
    told = {"name": "tanks", "phase": "running", "policy": None, "moves": []} | flow
    return {"flow": told, "sites": list(sites), "links": [], "net": None}


def site(name, **more):
    return {"name": name, "steps": ["a"], "state": "running", "why": ""} | more


def test_what_is_wrong_is_said_before_that_all_is_well():
    assert verdict(document([site("barn"), site("cloud")]))[0] == "Flow tanks is running at 2 sites."
    says, _, grave = verdict(document([site("barn"), site("cloud", state="away")]))
    assert (says, grave) == ("Away: cloud.", True)
    says, _, grave = verdict(document([site("barn", why="its disk is full")]))
    assert (says, grave) == ("Site barn: its disk is full.", True)


def test_that_no_coordinator_looks_after_the_flow_is_said_first():
    told = document([site("barn", state="unknown")]) | {"why": "no coordinator runs; the sites go on as they are"}
    del told["flow"]["policy"], told["flow"]["moves"]
    says, _, grave = verdict(told)
    assert (says, grave) == ("Flow tanks is running: no coordinator runs; the sites go on as they are.", True)
    assert verdict({**told, "flow": None})[0].startswith("No coordinator runs")


def test_a_move_under_way_is_told_with_its_reason():
    move = {"id": "2", "at_s": 0.0, "by": "hand", "why": "drain was asked for", "state": "preparing"}
    move |= {"steps": {"a": ["barn", "cloud"]}, "gap_s": None, "undone": ""}
    says, why, grave = verdict(document([site("barn")], moves=[move]))
    assert (says, why, grave) == ("Under way, preparing: a: barn → cloud.", "Why: drain was asked for.", False)


def test_decisions_from_before_the_coordinator_was_started_are_told_too_with_what_came_of_them():
    decision = {"id": "1", "at_s": 0.0, "why": "cheaper", "moves": {"a": ["barn", "cloud"]}, "forced": False}
    decision |= {"expects": {"money": [0.5, 0.25]}, "came": {"gap_s": 0.3, "undone": "", "measures": {"money": 0.26}}}
    newer = {"id": "2", "at_s": 1.0, "by": "hand", "why": "move was asked for", "state": "came to nothing"}
    newer |= {"steps": {"a": ["cloud", "barn"]}, "gap_s": None, "undone": "site 'barn' is away"}
    policy = {"name": "min-cost", "decisions": [decision]}
    rows = moves_of(document(policy=policy, moves=[newer])["flow"])
    assert [id for id, _ in rows] == ["2", "1"]
    assert rows[0][1][4] == "came to nothing: site 'barn' is away"
    assert rows[1][1][1:] == [
        "min-cost", "a: barn → cloud", "cheaper", "done", "300 ms", "money 0.5 → 0.25, came 0.26"
    ]  # fmt: skip
