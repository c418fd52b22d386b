"""The unit and the container file of examples/service are sound, and what they start does what docs/service.md says."""

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater import io
from headwater.cli import add_commands, app
from headwater.serve.routes import ROUTES
from headwater.serve.settings import read_settings
from headwater_bench.experiments.broker import broker
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
SERVICE = ROOT / "examples" / "service"
PAGE = (ROOT / "docs" / "service.md").read_text()
NAMES = set(re.findall(r"headwater_\w+", PAGE))  #: of metrics
#: what may stand in a container file, one instruction to a line
INSTRUCTIONS = {
    *(
        "FROM",
        "ARG",
        "RUN",
        "COPY",
        "USER",
        "WORKDIR",
        "VOLUME",
        "ENV",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    ),
}


@pytest.fixture
def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(SERVICE / "headwater.service")
    return parser


def words_of(unit):
    """Return what ExecStart runs, with the files of this machine and a port that is free."""
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[:3] == ["/opt/headwater/bin/headwater", "serve", "/etc/headwater/flows"]
    assert words[3:] == ["--listen", "127.0.0.1:8470"]
    command = [sys.executable, "-c", "from headwater.cli import main; main()"]
    return [*command, "serve", str(SERVICE / "flows"), "--listen", "127.0.0.1:0"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["headwater.service", "headwater-site.service"])
def test_systemd_takes_the_unit_as_it_is(name, tmp_path):
    text = (SERVICE / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/headwater/bin/headwater", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_of_a_site_starts_one_with_options_that_it_has():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(SERVICE / "headwater-site.service")
    words = shlex.split(parser["Service"]["ExecStart"])
    assert words[:2] == ["/opt/headwater/bin/headwater", "site"]
    add_commands()
    known = CliRunner().invoke(app, ["site", "--help"], env={"COLUMNS": "200"}).output
    assert all(word in known for word in words if word.startswith("--"))
    told = next(
        line for line in (SERVICE / "headwater-site.service").read_text().splitlines() if "OPTIONS such as" in line
    )
    assert all(option in known for option in re.findall(r"--[a-z]+", told))
    assert parser["Service"]["Type"] == "notify"


def test_the_lines_of_the_unit_that_the_page_explains_are_in_it():
    text = (SERVICE / "headwater.service").read_text()
    for line in re.findall(r"`([A-Z]\w+=[^`…]*)`", PAGE):
        assert line in text


def test_the_container_file_is_made_of_instructions_and_copies_what_is_there():
    lines = [line for line in (SERVICE / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
    parts = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
    assert parts.keys() <= INSTRUCTIONS
    assert lines[0].startswith("FROM python:3.")
    assert (SERVICE / parts["COPY"].split()[0]).exists()
    assert json.loads(parts["ENTRYPOINT"]) == ["headwater"]
    assert json.loads(parts["CMD"])[:2] == ["serve", parts["COPY"].split()[1]]  # the exec form, so that signals arrive


def test_sigterm_drains_the_service_and_its_metrics_have_the_names_of_the_page(unit, tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))  # as systemd does for StateDirectory=
    monkeypatch.setenv("HEADWATER_RUNTIME", str(tmp_path / "run"))
    with broker() as url:
        monkeypatch.setenv("BROKER", url)
        service = subprocess.Popen(words_of(unit), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            publish_until_taken(url, tmp_path / "state")
            until, seen = time.monotonic() + PATIENCE_S, ""
            while not all(name in seen for name in NAMES) and time.monotonic() < until:
                seen = answer(tmp_path / "state", "/metrics")
                time.sleep(0.1)
            service.send_signal(signal.SIGTERM)
            _, said = service.communicate(timeout=PATIENCE_S)
        finally:
            service.kill()
            service.communicate()
    assert service.returncode == 0, said
    assert any((tmp_path / "state" / "flows" / "levels" / "checkpoint").glob("*.checkpoint"))
    for name in NAMES:
        assert name in seen


def publish_until_taken(url, state):
    """Publish low levels until the service has taken one; it may not have subscribed yet when the first ones come."""
    schema = {"tank": str, "height": float, "at": "time"}
    writer = io.Mqtt(url, "tanks/{tank}/level", qos=1).open(io.Items([], schema).schema)
    until = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until:
            level = {"tank": "north", "height": 120.0, "at": datetime.now(UTC)}
            writer.write(io.Items([level], schema).open(pytest.fail).read(1, 0))
            pattern = r'headwater_records_in_total\{flow="levels",step="low"\} ([\d.]+)'
            taken = re.search(pattern, answer(state, "/metrics"))
            if taken and float(taken[1]) > 0:
                return
            time.sleep(0.1)
    finally:
        writer.close()
    pytest.fail("the service took no record")


def answer(state, path):
    """Return what the server answers; nothing while it is not up."""
    try:
        url = json.loads((state / "server.json").read_text())["url"]
        token = (state / "token").read_text().strip()
        asked = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as told:
            return told.read().decode()
    except OSError:
        return ""


def test_the_flow_that_the_page_begins_with_could_run(tmp_path):
    (text,) = re.findall(r"<<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)
    (tmp_path / "beat.py").write_text(text)
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "serve", str(tmp_path), "--check"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == [{"name": "beat", "file": str(tmp_path / "beat.py"), "runs": True, "why": None}]
    assert done.returncode == 0


def test_the_settings_of_the_page_and_of_the_example_are_settings(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "levels.toml").write_text(text)
    assert read_settings(tmp_path / "levels.toml").stop_within == 20
    assert read_settings(SERVICE / "flows" / "levels.toml").every == "1 s"


def test_the_page_names_every_route_of_the_api():
    for route in ROUTES:
        last = route.path.rpartition("/")[2].replace("{name}", "NAME").replace("{id}", "ID")
        assert last in PAGE, route.path
