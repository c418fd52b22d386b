"""A plan is a file that runs: written by `plan` or by hand, read back as it was, rehearsed by `simulate`."""

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headwater import Contract, Flow, Profile, StepProfile, col, io, sim
from headwater import net as nets
from headwater.cli import add_commands, app
from headwater.cli.submission import Terms, submission
from headwater.engine.options import Options
from headwater.errors import HeadwaterError, PlacementError
from headwater.place import Budget, Constraints, Model, Plan, strategy
from headwater.place.from_flow import GATHER_S, bridge_s, problem_of
from headwater.place.score import MEASURES

FLOW = """
from headwater import Flow, col, io
flow = Flow("tanks")
recorded = [{"height": 90.0 + n % 100} for n in range(500)]
sound = flow.read("levels", io.Items(recorded, {"height": float})).filter("sound", col.height >= 0)
sound.filter("low", col.height < 100).write("alarms", io.Discard())
"""
FARM = """
name = "farm"
[classes.gateway]
cpu_ips = 5e9
memory_bytes = 1e9
access_bps = 2e6
[classes.rented]
cpu_ips = 3e11
cloud = true
[wan]
kind = "gateways"
[[zones]]
name = "barn"
up_s = 0.004
devices = [{class = "gateway", lan_s = 0.001, sensors = ["levels"]}, {class = "gateway", count = 2, lan_s = 0.001}]
[[zones]]
name = "cloud"
up_s = 0.02
devices = [{class = "rented"}]
"""
PROFILE = Profile(
    "tanks",
    "gateway",
    {
        "levels": StepProfile(0.0, bytes_out=50.0),
        "sound": StepProfile(300e-6, bytes_in=50.0, bytes_out=50.0),
        "low": StepProfile(250e-6, selectivity={"out": 0.1}, bytes_in=50.0, bytes_out=50.0),
        "alarms": StepProfile(1e-6),
    },
)
BY_HAND = """
flow = "tanks_flow.py"
net = "farm.toml"
profile = "tanks.json"

[placement]
levels = "barn/0"
sound = "barn"
low = "barn"
alarms = "cloud"
"""


@pytest.fixture
def farm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tanks_flow.py").write_text(FLOW)
    Path("farm.toml").write_text(FARM)
    PROFILE.write(Path("tanks.json"))
    return tmp_path


def tanks() -> Flow:
    flow = Flow("tanks")
    sound = flow.read("levels", io.Items([], {"height": float})).filter("sound", col.height >= 0)
    sound.filter("low", col.height < 100).write("alarms", io.Discard())
    return flow


def ran(*arguments, code=0):
    add_commands()
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output or done.exception
    return done


ASKED = ("plan", "tanks_flow.py", "farm.toml", "--profile", "tanks.json", "--rate", "1500", "--pin", "alarms=cloud")


# -- as a file ------------------------------------------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
positive = st.floats(1e-6, 1e12)
references = st.sampled_from(["tanks.py", "sub/tanks.py:flow", "farm.flows:tanks", "../far/tanks.py:make"])
costs = st.builds(
    StepProfile,
    time_s=st.floats(0, 10),
    overhead_s=st.floats(0, 10),
    selectivity=st.dictionaries(names, st.floats(0, 100), max_size=2),
    state_bytes=st.integers(0, 2**40),
)
plans = st.builds(
    Plan,
    flow=references,
    net=st.sampled_from(["farm.toml", "nets/farm.npz", "../farm.json"]),
    placement=st.dictionaries(names, names, max_size=5),
    rates_hz=positive | st.dictionaries(names, positive, max_size=3),
    contract=st.none()
    | st.builds(
        Contract,
        positive,
        st.none() | positive,
        st.none() | positive,
        st.sampled_from(["best effort", "shed", "block"]),
    ),
    profile=st.none() | st.just("p/tanks.json") | st.builds(Profile, names, names, st.dictionaries(names, costs)),
    measured_ips=st.none() | positive,
    copies=st.dictionaries(names, st.integers(1, 9), max_size=2),
    model=st.sampled_from(Model),
    strategy=names,
    objective=st.sampled_from(["", "critical", "critical + 2 * money then devices"]),
    every=st.none() | st.sampled_from(["100 ms", "1 s"]),
    predicted=st.dictionaries(st.sampled_from(MEASURES), st.none() | positive),
)


@given(plans)
def test_what_is_written_is_read_back_as_it_was(tmp_path_factory, plan):
    folder = tmp_path_factory.mktemp("plans")
    path = folder / "deep" / "plan.json"
    path.parent.mkdir()
    here = dataclasses.replace(plan, **{name: _at(folder, getattr(plan, name)) for name in ("flow", "net", "profile")})
    here.save(path)
    assert Plan.load(path) == here
    Plan.load(path).save(folder / "plan.json")  # another folder, the same flow and net
    assert Plan.load(folder / "plan.json") == here
    assert [p.name for p in path.parent.iterdir()] == ["plan.json"]


def _at(folder, name):
    """A reference as somebody in another folder would have it."""
    if not isinstance(name, str) or name.startswith("farm.flows"):
        return name
    return str((folder / name).parent.resolve() / Path(name).name)


def test_paths_in_a_plan_are_relative_to_its_file_and_modules_are_not(farm):
    (farm / "plans").mkdir()
    plan = Plan("tanks_flow.py:flow", "farm.toml", {"levels": "barn/0"}, profile="tanks.json")
    plan.save("plans/one.json")
    written = json.loads((farm / "plans" / "one.json").read_text())
    assert (written["flow"], written["net"]) == ("../tanks_flow.py:flow", "../farm.toml")
    assert Plan.load("plans/one.json") == plan
    dataclasses.replace(plan, flow="farm.flows:tanks").save("plans/one.json")
    assert json.loads((farm / "plans" / "one.json").read_text())["flow"] == "farm.flows:tanks"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "absent.json",
            None,
            "plan file 'absent.json': there is no such file; 'headwater plan FLOW NET --output FILE'",
        ),
        ("plan.yaml", "", "must end in .json or .toml; got '.yaml'"),
        ("plan.json", "{", "is not JSON"),
        ("plan.toml", "flow =", "is not TOML"),
        ("plan.json", "[1]", "must hold a table with flow, net and placement; got list"),
        ("plan.toml", 'net = "farm.toml"', "does not say which flow it is for"),
        ("plan.toml", 'flow = "f.py"\nnet = "farm.toml"', "does not say where each step runs"),
        ("plan.toml", 'flow = "f.py"\nplacement = {}', "does not say on which net"),
        ("plan.toml", f"{BY_HAND}\n[contrat]\nrate_hz = 5", "'contrat' is nothing of a plan; did you mean 'contract'?"),
        ("plan.toml", BY_HAND.replace('"barn/0"', "7"), "Expected `str`, got `int` - at `$.placement[...]`"),
        ("plan.toml", f"version = 2{BY_HAND}", "the plan is of version 2; this program reads 1"),
        (
            "plan.toml",
            f"rates_hz = -1{BY_HAND}",
            "the rate of every source must be 0 or more records per second; got -1",
        ),
        ("plan.toml", f"{BY_HAND}[contract]\nrate_hz = 0", "contract: rate_hz must be above 0; got 0"),
        ("plan.toml", f'model = "fast"{BY_HAND}', "Invalid enum value 'fast' - at `$.model`"),
        ("farm.toml", FARM, "this looks like a net"),
        ("tanks.json", msgspec.json.encode(PROFILE).decode(), "this looks like a profile"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong_with_it(farm, name, text, message):
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(PlacementError) as told:
        Plan.load(name)
    assert message in str(told.value)
    assert f"plan file '{name}'" in str(told.value)


def test_what_the_command_prints_is_not_taken_for_a_plan(farm):
    Path("told.json").write_text(ran(*ASKED, "--json").stdout)
    with pytest.raises(PlacementError, match="write a plan with --output"):
        Plan.load("told.json")


# -- bound to a flow and a net --------------------------------------------------------------------------------------------


def test_what_a_strategy_found_is_found_again_in_its_plan(farm):
    flow, net = tanks(), nets.read("farm.toml")
    asked = problem_of(flow, net, PROFILE, 1500.0, constraints=Constraints(pins={"alarms": "cloud"}))
    found = strategy("best")(asked, Budget(time_s=60))
    Plan.of(found, flow="tanks_flow.py", net="farm.toml", profile=PROFILE, rates_hz=1500.0).save("plan.json")
    plan = Plan.load("plan.json")
    bound = plan.bind(flow, net)
    assert bound.by_name == found.by_name
    assert plan.predicted == {name: pytest.approx(found.score.measure(name)) for name in MEASURES}
    for name in MEASURES:
        assert bound.score.measure(name) == pytest.approx(plan.predicted[name])
    assert (plan.strategy, plan.objective) == ("best", "aggregate")


def test_a_site_by_hand_leaves_the_device_to_us_and_a_device_does_not(farm):
    Path("plan.toml").write_text(BY_HAND)
    bound = Plan.load("plan.toml").bind(tanks(), nets.read("farm.toml"))
    assert bound.by_name["levels"] == "barn/0"
    assert bound.by_name["alarms"] == "cloud"
    assert {bound.by_name["sound"], bound.by_name["low"]} <= {"barn/0", "barn/1", "barn/2"}
    # 1,000 records/s fill 30 % and 25 % of a gateway; 2,500 only fit apart
    fast = dataclasses.replace(Plan.load("plan.toml"), rates_hz=2500.0).bind(tanks(), nets.read("farm.toml"))
    assert fast.by_name["sound"] != fast.by_name["low"]
    assert {fast.by_name["sound"], fast.by_name["low"]} <= {"barn/0", "barn/1", "barn/2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": None}, "does not say where step 'low' of flow 'tanks' runs"),
        ({"lwo": "barn/0"}, "places step 'lwo', which flow 'tanks' does not have; did you mean 'low'?"),
        ({"low": "bran"}, "puts step 'low' on 'bran': net 'farm' has no device 'bran'"),
        ({"low": "bran"}, "did you mean 'barn'?"),
        ({"sound": "barn/1", "low": "barn/1"}, "does not hold on net 'farm': device 'barn/1' would be 110.0 % busy"),
    ],
)
def test_a_plan_that_does_not_fit_its_flow_or_net_says_how(farm, change, message):
    placement = {"levels": "barn/0", "sound": "barn/1", "low": "barn/2", "alarms": "cloud"} | change
    plan = Plan("f.py", "n.toml", {k: v for k, v in placement.items() if v}, rates_hz=2000.0, profile=PROFILE)
    with pytest.raises(PlacementError) as told:
        plan.bind(tanks(), nets.read("farm.toml"))
    assert str(told.value).count(message) == 1


def test_a_plan_without_a_profile_takes_one_or_asks_for_it(farm):
    plan = Plan("f.py", "n.toml", dict.fromkeys(("levels", "sound", "low", "alarms"), "barn/0"))
    assert plan.bind(tanks(), nets.read("farm.toml"), PROFILE).device.tolist() == [0, 0, 0, 0]
    with pytest.raises(PlacementError, match="has no profile; measure one with 'headwater profile'"):
        plan.bind(tanks(), nets.read("farm.toml"))


def test_what_found_nothing_is_no_plan(farm):
    asked = problem_of(tanks(), nets.read("farm.toml"), PROFILE, 1e9)
    with pytest.raises(PlacementError, match="there is no plan of 'tanks'"):
        Plan.of(strategy("aels")(asked), flow="f.py", net="n.toml")


@pytest.mark.parametrize("model", Model)
def test_a_bound_plan_is_rehearsed_as_it_was_reckoned(farm, model):
    placement = {"levels": "barn/0", "sound": "barn/1", "low": "barn/2", "alarms": "cloud"}
    plan = Plan("f.py", "n.toml", placement, rates_hz=500.0, profile=PROFILE, model=model)
    report = sim.run(plan.bind(tanks(), nets.read("farm.toml")))
    row = report.extra["sinks"]["alarms"]
    assert report.last.records_in > 4000
    assert row["simulated_s"] == pytest.approx(row["predicted_s"], rel=0.1)


def test_records_of_a_plan_with_checkpoints_wait_where_they_cross(farm):
    placement = {"levels": "barn/0", "sound": "barn/1", "low": "barn/1", "alarms": "cloud"}
    plan = Plan("f.py", "n.toml", placement, rates_hz=500.0, profile=PROFILE)
    at_once = plan.bind(tanks(), nets.read("farm.toml"))
    waiting = dataclasses.replace(plan, every="200 ms").bind(tanks(), nets.read("farm.toml"))
    assert waiting.score.critical == pytest.approx(
        at_once.score.critical + GATHER_S + bridge_s("200 ms")
    )  # one bridge, to the cloud
    row = sim.run(waiting).extra["sinks"]["alarms"]
    assert row["simulated_s"] == pytest.approx(row["predicted_s"], rel=0.1)
    with pytest.raises(HeadwaterError, match="every: "):
        dataclasses.replace(plan, every="soon")


def test_records_are_reckoned_to_gather_at_their_source_for_as_long_as_the_engine_lets_them():
    assert pytest.approx(Options().linger_s) == 2 * GATHER_S


# -- on the command line --------------------------------------------------------------------------------------------------


def test_what_plan_writes_simulate_plays(farm):
    told = json.loads(ran(*ASKED, "--output", "plan.json", "--json").stdout)
    assert told["output"] == "plan.json"
    plan = Plan.load("plan.json")
    assert plan.placement == told["placement"]
    assert plan.profile == PROFILE
    played = json.loads(ran("simulate", "plan.json", "--for", "4s", "--json").stdout)
    assert played["placement"] == told["placement"]
    assert played["records_in"] == pytest.approx(6000, rel=0.1)
    as_before = ran("simulate", *ASKED[1:], "--placement", "plan.json", "--for", "4s", "--json")
    assert json.loads(as_before.stdout) == played  # the same rehearsal as of the flow, the net and all the options


def test_how_often_checkpoints_are_made_is_asked_for_kept_in_the_plan_and_taken_by_deploy(farm):
    shown = [
        json.loads(ran(*ASKED, *more, "--json").stdout)["measures"]["critical"] for more in ((), ("--every", "1 s"))
    ]
    assert shown[1] == pytest.approx(shown[0] + GATHER_S + bridge_s("1 s"))
    ran(*ASKED, "--every", "1 s", "--output", "plan.json")
    assert Plan.load("plan.json").every == "1 s"
    given = {"inputs": [], "output": None, "rate": None, "every": None}
    assert submission("plan.json", None, given, Terms()).deployment().every == "1 s"
    assert submission("plan.json", None, given | {"every": "50 ms"}, Terms()).deployment().every == "50 ms"
    dataclasses.replace(Plan.load("plan.json"), every=None).save("plan.json")
    assert submission("plan.json", None, given, Terms()).deployment().every == "250 ms"


def test_a_plan_is_played_from_anywhere_and_at_other_rates(farm, monkeypatch):
    ran(*ASKED, "--output", "plan.json")
    (farm / "elsewhere").mkdir()
    monkeypatch.chdir(farm / "elsewhere")
    played = json.loads(ran("simulate", "../plan.json", "--rate", "levels=500", "--for", "4s", "--json").stdout)
    assert played["records_in"] == pytest.approx(2000, rel=0.1)
    told = ran("simulate", "../plan.json", "--rate", "1e6", code=1)
    assert "does not hold on net 'farm': step 'sound' takes 1,000,000 records/s" in str(told.exception)


def test_a_plan_by_hand_needs_a_flow_a_net_and_a_place_for_each_step(farm):
    short = "\n".join(line for line in BY_HAND.splitlines() if not line.startswith("profile"))
    Path("plan.toml").write_text(short)
    played = json.loads(ran("simulate", "plan.toml", "--for", "1s", "--json").stdout)  # profiled now
    assert played["placement"]["alarms"] == "cloud"
    assert played["records_in"] > 0


def test_a_plan_can_be_mended_from_its_file(farm):
    ran(*ASKED, "--output", "plan.json")
    at = Plan.load("plan.json").placement["sound"]
    ran(*ASKED, "--from", "plan.json", "--lost", "barn/2", "--output", "mended.json")
    assert Plan.load("mended.json").placement["sound"] == at


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "plan.json", "--pin", "low=barn/1"), "--pin asks to plan anew: give FLOW NET"),
        (("simulate", "plan.json", "--model", "queue"), "--model asks to plan anew"),
        (("simulate", "plan.json", "--strategy", "aels"), "--strategy asks to plan anew"),
        (("simulate", "tanks_flow.py"), "say what to play: FLOW NET, a plan file, or --problem FILE"),
        ((*ASKED, "--output", "plan.txt"), "must end in .json; got 'plan.txt'"),
        ((*ASKED, "--add", "barn=gateway", "--output", "new.json"), "leave out --output"),
        (("plan", "tanks_flow.py", "tanks_flow.py", "farm.toml", "--output", "new.json"), "got 2 flows"),
        (("plan", "--problem", "cases.json", "--output", "new.json"), "--problem has none"),
    ],
)
def test_a_wrong_command_about_a_plan_says_what_is_wrong(farm, arguments, message):
    Path("plan.json").write_text('{"flow": "tanks_flow.py", "net": "farm.toml", "placement": {}}')
    done = ran(*arguments, code=1)
    assert isinstance(done.exception, HeadwaterError)
    assert message in str(done.exception)


def test_nothing_is_written_when_nothing_fits(farm):
    ran(*ASKED[:-4], "--rate", "1e9", "--no-explain", "--output", "plan.json", code=1)
    assert not Path("plan.json").exists()


def test_a_contract_that_promises_nothing_is_told_with_the_file(farm):
    Path("plan.toml").write_text(BY_HAND + "\n[contract]\nrate_hz = 0\n")
    with pytest.raises(PlacementError, match=r"plan\.toml.*rate_hz must be above 0"):
        Plan.load("plan.toml")
