"""What goes wrong at sites is told in a word, and nothing is lost: what sinks have is what one engine has."""

import subprocess
from pathlib import Path

import pytest

from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.token import make_token
from sites_of import as_one_engine_has_it, farm, running, site, wait_for, whys

SITES = ("barn", "shed", "cloud")


def started(commands, folder, *up):
    """Start three sites and a flow over them; return the coordinator once all run."""
    plan = farm(folder)
    commands.start("up", "farm/farm.toml", *up)
    deploy = commands.start("deploy", plan, "--within", "180s")
    wait_for(lambda: running(commands), commands, "a flow that runs")
    return deploy


def told(commands, name, word):
    """Wait until the coordinator says something of a site."""
    wait_for(lambda: word in whys(commands).get(name, ""), commands, f"a word of '{name}'")


@pytest.mark.thorough  # test_at_rest.py and test_sites.py tell them so where no flow runs
def test_who_is_wrong_is_told_while_a_flow_runs_which_loses_nothing(commands, tmp_path):
    deploy = started(commands, tmp_path, "--no-namespaces")
    state = StateFolder(tmp_path / ".headwater" / "deploy")
    at = "{}:{}".format(*state.address)
    for name, folder in (
        ("attic", state.certificates),
        ("shed", state.certificates),
        ("cloud", tmp_path / "elsewhere"),
    ):
        (tmp_path / f"{name}.token").write_text(make_token(folder, name))

    def refused(*words, **how):
        process = commands.start(*words, **how)
        assert process.wait(180) == 2, commands.logs()
        return " ".join(process.log.read_text().split())

    unknown = " ".join(commands.run("move", "means", "barm", code=2).split())
    assert "the net of flow 'tanks' has no site 'barm'; did you mean 'barn'?" in unknown
    unknown = refused("site", "--name", "attic", "--token", "attic.token", "--join", at)
    assert "the net of flow 'tanks' has no site 'attic'; its sites are 'barn', 'cloud', 'shed'" in unknown
    second = refused("deploy", "farm/plan.json")
    assert f"is in use by process {deploy.pid}" in second
    second = refused("deploy", "farm/plan.json", "--state", "second", "--listen", at)
    assert f"the coordinator cannot listen at {at}" in second
    other = "import headwater; headwater.__version__ = '0.0.9'; from headwater.cli import main; main()"
    version = refused("site", "--token", "shed.token", "--join", at, program=("-c", other))
    assert "does not admit this site: it runs Headwater 0.0.9" in version
    assert "install the same at both" in version
    twice = refused("site", "--name", "shed", "--token", "shed.token", "--join", at)
    assert "a site 'shed' is here already, from 127.0.0.1; does another machine have the same token?" in twice
    stranger = commands.start("site", "--name", "cloud", "--token", "cloud.token", "--join", at)
    wait_for(
        lambda: "is the token of this coordinator?" in stranger.log.read_text(), commands, "a word about the token"
    )
    assert all(each["here"] for each in wait_for(lambda: running(commands), commands, "a flow that runs")["sites"])
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.mark.thorough  # tests/deploy/local cuts links of sites without a flow, test_bridge.py those of a flow
@pytest.mark.parametrize("how", ["silent", "reset"])
def test_a_link_is_cut_and_mended_and_nothing_is_lost(commands, tmp_path, how):
    deploy = started(commands, tmp_path)
    if "as root" in commands.run("link", "mend", code=None):
        pytest.skip("networks of their own need root")
    commands.run("link", "cut", "cloud", *(["--reset"] if how == "reset" else []))  # from all others
    told_away = "site 'cloud' is away"
    wait_for(lambda: told_away in deploy.log.read_text(), commands, "a word about the site")
    commands.run("link", "mend")
    wait_for(lambda: running(commands), commands, "a flow that runs again")
    cut = commands.json("link", "cut", "barn", "shed", *(["--reset"] if how == "reset" else []))
    assert cut == {"cut": [{"one": "barn", "other": "shed", "how": how}]}
    waiting = "nobody answers" if how == "silent" else "cannot reach"
    up = commands.started[0]
    wait_for(lambda: waiting in up.log.read_text(), commands, "a word about the bridge")
    assert commands.json("link", "mend", "shed", "barn") == {"cut": []}
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


def test_without_networks_of_their_own_no_link_is_cut(commands, tmp_path):
    assert "no 'headwater up' runs with this state folder" in commands.run("link", "cut", "barn", code=2)
    farm(tmp_path)
    up = commands.start("up", "farm/farm.toml", "--site", "barn", "--no-namespaces")
    wait_for(lambda: "sites run" in up.log.read_text(), commands, "sites")
    said = " ".join(commands.run("link", "cut", "barn", code=2).split())
    assert "no link can be cut: sites have networks of their own as root, without --no-namespaces" in said


#: sets the clock of every Python process that has it in its path
CLOCK = """
import time

seconds, nanoseconds = time.time, time.time_ns
time.time = lambda: seconds() + {off_s}
time.time_ns = lambda: nanoseconds() + {off_s} * 10**9
"""


@pytest.mark.thorough  # test_machine.py has it told without processes
@pytest.mark.parametrize("off_s", [3600, -3600])
def test_a_site_whose_clock_is_off_by_an_hour_is_told_and_nothing_is_lost_or_late(commands, tmp_path, off_s):
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK.format(off_s=off_s))
    plan = farm(tmp_path)
    deploy = commands.start("deploy", plan, "--within", "180s")
    for name in SITES:
        environ = {"PYTHONPATH": str(tmp_path / "clock")} if name == "shed" else {}
        site(commands, name, environ=environ)
    wait_for(lambda: running(commands), commands, "a flow that runs")
    told(commands, "shed", f"its clock is off by {off_s:,} s")
    assert "clock" not in whys(commands)["cloud"]
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk of its own, which has room for 100 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a disk of its own needs root: {made.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path) -> None:
    """Take all the room that a disk has."""
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(2**16))
            except OSError:
                return


#: which sends, or sends and receives
@pytest.mark.thorough  # test_full_disk.py of the engine shows it of a run, test_machine.py that it is told
@pytest.mark.parametrize("full", ["barn", "shed"])
def test_a_site_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(commands, tmp_path, small_disk, full):
    plan = farm(tmp_path)
    deploy = commands.start("deploy", plan, "--within", "180s")
    for name in SITES:
        site(commands, name, "--state", small_disk / name if name == full else tmp_path / name)
    wait_for(lambda: running(commands), commands, "a flow that runs")
    fill(small_disk / "filler")
    told(commands, full, "its disk is full")
    (tmp_path / "hurry").touch()  # all comes now, and there is no room for it
    kept = commands.started[1 + SITES.index(full)].log
    wait_for(lambda: "the disk is full; free some space" in kept.read_text(), commands, "a word about the disk")
    assert deploy.poll() is None
    (small_disk / "filler").unlink()
    assert deploy.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.mark.thorough  # test_work.py shows it of a site alone
def test_a_site_whose_disk_is_full_takes_no_step_and_the_flow_goes_on(commands, tmp_path, small_disk):
    plan = farm(tmp_path)
    deploy = commands.start("deploy", plan, "--within", "180s")
    for name in SITES:
        site(commands, name, "--state", small_disk / name if name == "cloud" else tmp_path / name)
    wait_for(lambda: running(commands), commands, "a flow that runs")
    fill(small_disk / "filler")
    said = " ".join(commands.run("move", "sound", "cloud", "--within", "180s", code=2).split())
    assert "the move came to nothing, and the flow goes on as it was: site 'cloud'" in said
    assert "No space left on device" in said
    (small_disk / "filler").unlink()
    wait_for(lambda: running(commands), commands, "a flow that runs")
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.fixture
def state_disk(tmp_path, small_disk):
    """Have the coordinator's state on a disk of its own; comes before the commands, which begin it."""
    (tmp_path / ".headwater").symlink_to(small_disk)
    return small_disk


def test_a_coordinator_that_cannot_keep_what_it_decides_ends_and_the_flow_goes_on(state_disk, commands, tmp_path):
    plan = farm(tmp_path)
    first = commands.start("deploy", plan, "--within", "180s")
    for name in SITES:
        site(commands, name, "--state", tmp_path / name)
    before = wait_for(lambda: running(commands), commands, "a flow that runs")
    fill(state_disk / "filler")
    said = " ".join(commands.run("move", "sound", "barn", code=2).split())
    assert "the flow's files cannot be written into" in said  # it needs them for a move; nothing is begun yet
    (state_disk / "filler").unlink()
    assert "nothing is to be moved" in commands.run("move", "sound", "shed", code=2)
    fill(state_disk / "filler")
    said = " ".join(commands.run("move", "sound", "barn", code=2).split())
    assert "No space left on device; the coordinator ends, and the sites go on: start it again when it can be" in said
    assert first.wait(180) == 2
    assert "No space left on device" in first.log.read_text()
    (state_disk / "filler").unlink()
    second = commands.start("deploy")
    after = wait_for(lambda: running(commands), commands, "a flow that still runs")
    assert [each["pid"] for each in after["sites"]] == [each["pid"] for each in before["sites"]]
    assert next(each["steps"] for each in after["sites"] if each["name"] == "shed") == ["sound", "archive"]
    (tmp_path / "hurry").touch()
    assert second.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)
