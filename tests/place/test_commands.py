"""The commands plan, simulate and net: their JSON, their exit codes, their complaints."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headwater import Profile, StepProfile
from headwater import net as nets
from headwater.cli.net import app as net_app
from headwater.cli.plan import plan
from headwater.cli.simulate import simulate
from headwater.cli.size import size
from headwater.errors import HeadwaterError
from headwater_bench.cases import ghosh

KEYS = {"status", "value", "bound", "gap", "placement", "paths", "devices", "links", "binding", "seconds"}
FLOW = """
from headwater import Flow, col, io
flow = Flow("tanks")
low = flow.read("levels", io.Items([], {"height": float})).filter("low", col.height < 9)
low.write("alarms", io.Discard())
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tanks_flow.py").write_text(FLOW)
    steps = {
        "levels": StepProfile(0.0, bytes_out=50.0),
        "low": StepProfile(1e-5, selectivity={"out": 0.1}, bytes_out=50.0),
        "alarms": StepProfile(1e-6),
    }
    Profile("tanks", "pi-2", steps).write(Path("profile.json"))
    net = nets.cloud_edge(2, 2, 2, seed=1)
    nets.write(dataclasses.replace(net, sensors=(("levels", net.device("site-0/0")),)), "net.toml")
    nets.write(net, "bare.toml")
    ghosh.write([ghosh.draw(6, 1, seed=s) for s in (1, 2)], "cases.json")
    return tmp_path


def run(command, *arguments: str):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_plan_prints_one_json_document_with_the_promised_keys(files):
    pins = ("--pin", "levels=site-0/0", "--pin", "alarms=cloud-1")
    done = run(plan, "tanks_flow.py", "net.toml", "--profile", "profile.json", "--rate", "500", *pins, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert set(document) >= KEYS
    assert document["status"] == "optimal"
    assert document["placement"]["low"] == "cloud-1"  # the way is the same, the processor is faster


def test_plan_reads_a_file_of_dataflows_and_draws(files):
    done = run(plan, "--problem", "cases.json", "--case", "6_1_2", "--rate", "1000", "--picture", "p.png", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "optimal"
    assert Path("p.png").stat().st_size > 5_000
    first = run(plan, "--problem", "cases.json", "--json")
    assert json.loads(first.stdout)["problem"].startswith("6_1_1")


def test_plan_says_no_with_exit_code_1_and_a_reason(files):
    done = run(plan, "--problem", "cases.json", "--case", "6_1_2", "--rate", "1000000", "--time", "3", "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["status"] == "infeasible"
    assert document["explanation"]["relaxations"]


def test_simulate_plays_what_plan_wrote_and_repeats_itself(files):
    planned = run(plan, "--problem", "cases.json", "--case", "6_1_2", "--rate", "100", "--json")
    Path("placed.json").write_text(planned.stdout)
    asked = (
        "--problem",
        "cases.json",
        "--case",
        "6_1_2",
        "--rate",
        "100",
        "--placement",
        "placed.json",
        "--for",
        "20s",
    )
    a, b = run(simulate, *asked, "--json"), run(simulate, *asked, "--json")
    assert a.exit_code == 0, a.output
    assert a.stdout == b.stdout
    document = json.loads(a.stdout)
    assert document["records_in"] == pytest.approx(2000, rel=0.1)
    sinks = document["sinks"].values()
    assert all(s["simulated_s"] == pytest.approx(s["predicted_s"], rel=0.05) for s in sinks if s["records"])


def test_simulate_has_an_engine_mode(files):
    done = run(
        simulate,
        "tanks_flow.py",
        "net.toml",
        "--profile",
        "profile.json",
        "--mode",
        "engine",
        "--for",
        "1s",
        "--policy",
        "random",
        "--json",
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["policy"] == "random"


def test_net_is_made_and_shown(files):
    made = CliRunner().invoke(net_app, ["make", "big.npz", "--sites", "5", "--devices", "7", "--json"])
    assert made.exit_code == 0, made.output
    shown = CliRunner().invoke(net_app, ["show", "big.npz", "--json"])
    document = json.loads(shown.stdout)
    assert document["devices"] == 45
    assert document["wan_s"]["least"] >= 0.065
    assert "45 devices" in CliRunner().invoke(net_app, ["show", "big.npz"]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tanks_flow.py",), "say what to place and where"),
        (("tanks_flow.py", "absent.toml", "--profile", "profile.json"), "no net file 'absent.toml'"),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--pin", "low"),
            "--pin is written NAME=VALUE",
        ),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--rate", "fast"),
            "--rate needs a number; got 'fast'",
        ),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--pin", "low=site-7/0"),
            "no device 'site-7/0'",
        ),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--strategy", "bets"),
            "did you mean 'best'",
        ),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--objective", "speed"),
            "unknown measure 'speed'",
        ),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--pin", "low=a", "--pin", "low=b"),
            "--pin says low=a and low=b; give one of them",
        ),
        (("tanks_flow.py", "net.toml", "--rate", "5", "--rate", "6"), "--rate is one number for all sources"),
        (("tanks_flow.py", "net.toml", "--rate", "5/fortnight"), "--rate: cannot read rate '5/fortnight'"),
        (("--problem", "cases.json", "--case", "9_9_9"), "no dataflow '9_9_9'"),
        # what is wrong on the command line itself is said before a profile is measured, so none is given here
        (("tanks_flow.py", "net.toml", "--strategy", "exakt"), "did you mean 'exact'"),
        (("tanks_flow.py", "net.toml", "--model", "que"), "models are 'engine', 'queue', 'round-robin', 'shared'"),
        (("tanks_flow.py", "net.toml", "--rate", "nan"), "--rate needs a number of 0 or more"),
        (("tanks_flow.py", "net.toml", "--time", "-1"), "--time must be 0 s or more"),
        (("tanks_flow.py", "net.toml", "--gap", "2"), "--gap must be from 0 to 1"),
        (("tanks_flow.py", "net.toml", "--copies", "low=two"), "--copies needs a whole number"),
        (
            ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--pin", "lwo=cloud-0"),
            "did you mean 'low'",
        ),
    ],
)
def test_a_wrong_command_says_what_is_wrong(files, arguments, message):
    done = run(plan, *arguments)
    assert isinstance(done.exception, HeadwaterError)
    assert message in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "fast"), "modes are 'engine', 'queues'"),
        (("--service", "gaussian"), "'constant', 'exponential'"),
        (("--mode", "engine", "--runner", "thread"), "did you mean 'threads'"),
        (("--workers", "0"), "at least 1 worker"),
        (("--for", "soon"), "cannot read duration 'soon'"),
        (("--arrivals", "nowhere.txt"), "there is no file 'nowhere.txt'"),
    ],
)
def test_a_wrong_rehearsal_says_what_is_wrong(files, arguments, message):
    done = run(simulate, "tanks_flow.py", "net.toml", *arguments)
    assert isinstance(done.exception, HeadwaterError)
    assert message in str(done.exception)


def test_plan_shares_a_step_out_to_copies(files):
    asked = ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--copies", "low=2", "--json")
    placement = json.loads(run(plan, *asked).stdout)["placement"]
    assert {"low #1", "low #2"} <= set(placement)


def test_simulate_plays_a_thread_per_step_as_well(files):
    asked = ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--mode", "engine", "--runner", "threads")
    done = run(simulate, *asked, "--for", "1s", "--json")
    assert json.loads(done.stdout)["records_in"] > 0


def test_importing_place_and_net_does_not_import_numba():
    code = "import sys, headwater.net, headwater.place; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_source_stays_where_its_sensor_is(files):
    asked = ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--json")
    document = json.loads(run(plan, *asked).stdout)
    assert document["placement"]["levels"] == "site-0/0"
    moved = json.loads(run(plan, *asked, "--pin", "levels=site-1/1").stdout)
    assert moved["placement"]["levels"] == "site-1/1"


@pytest.mark.parametrize("command", [plan, simulate])
def test_a_source_without_a_place_is_not_put_where_it_is_cheapest(files, command):
    asked = ("tanks_flow.py", "bare.toml", "--profile", "profile.json")
    done = run(command, *asked)
    assert isinstance(done.exception, HeadwaterError)
    assert "source 'levels' has no place" in str(done.exception)
    assert "--pin levels=DEVICE" in str(done.exception)
    assert run(command, *asked, "--pin", "levels=site-0/0").exit_code == 0


def test_a_placement_of_ones_own_needs_no_pins_to_be_played(files):
    asked = ("tanks_flow.py", "bare.toml", "--profile", "profile.json")
    planned = run(plan, *asked, "--pin", "levels=site-0/0", "--json")
    Path("placed.json").write_text(planned.stdout)
    assert run(simulate, *asked, "--placement", "placed.json", "--for", "1s", "--json").exit_code == 0
    assert "there is no placement file 'place.json'; is the path right" in str(
        run(simulate, *asked, "--placement", "place.json").exception
    )


def test_what_saw_no_record_is_no_profile(files):
    done = run(plan, "tanks_flow.py", "net.toml")  # its source has no records
    assert "source 'levels' gave no record" in str(done.exception)
    Profile("tanks", "pi-2", dict.fromkeys(("levels", "low", "alarms"), StepProfile(0.0))).write(Path("empty.json"))
    done = run(plan, "tanks_flow.py", "net.toml", "--profile", "empty.json")
    assert "the profile of flow 'tanks' is empty" in str(done.exception)


@pytest.mark.parametrize("command", [plan, simulate, size])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("bare.toml",), "source 'levels' has no place"),
        (("net.toml", "--pin", "lwo=site-0/0"), "no step 'lwo'"),
        (("net.toml", "--pin", "low=site-9/0"), "has no device 'site-9/0'"),
        (("net.toml", "--close", "site-0/0"), "pinned to 'site-0/0', which is closed"),
        (("net.toml", "--keep", "low=nowhere"), "has no trust zone 'nowhere'"),
        (("net.toml", "--measured-on", "pie-2"), "--measured-on is a class of net"),
    ],
)
def test_what_is_known_to_be_wrong_is_told_before_anything_is_measured(files, command, asked, message):
    done = run(command, "tanks_flow.py", *asked)
    assert message in str(done.exception)  # and not that its source has no records, which is found by measuring


def test_an_earlier_plan_that_does_not_fit_is_told_before_anything_is_measured(files):
    Path("old.json").write_text('{"placement": {"levels": "site-0/0"}}')
    done = run(plan, "tanks_flow.py", "bare.toml", "--from", "old.json")
    assert "does not say where step 'alarms' runs" in str(done.exception)


def test_simulate_plays_the_model_that_was_planned_with(files):
    asked = ("tanks_flow.py", "net.toml", "--profile", "profile.json", "--for", "2s", "--json")
    engine, shared = (json.loads(run(simulate, *asked, *model).stdout) for model in ((), ("--model", "shared")))
    assert (engine["mode"], shared["mode"]) == ("engine", "queues")
    row = engine["sinks"]["alarms"]
    assert row["simulated_s"] == pytest.approx(row["predicted_s"], rel=0.2)
    refused = run(simulate, *asked, "--mode", "queues")
    assert "play it with run_engine" in str(refused.exception)
