"""The unit and the container file of examples/service are sound, and what they start does what docs/service.md says."""

import configparser
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater import io
from headwater_bench.experiments.broker import broker

ROOT = Path(__file__).parents[1]
SERVICE = ROOT / "examples" / "service"
PAGE = (ROOT / "docs" / "service.md").read_text()
PATIENCE_S = 60
#: what may stand in a container file, one instruction to a line
INSTRUCTIONS = {
    *("FROM", "ARG", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "ENV", "STOPSIGNAL", "ENTRYPOINT", "CMD"),
}


@pytest.fixture
def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(SERVICE / "levels.service")
    return parser


def words_of(unit):
    """Return what ExecStart runs, with the files of this machine."""
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[:2] == ["/opt/headwater/bin/headwater", "run"]
    assert words[2] == "/etc/headwater/levels.py"
    command = [sys.executable, "-c", "from headwater.cli import main; main()"]
    return [*command, "run", str(SERVICE / "levels.py"), *words[3:]]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit_as_it_is(tmp_path):
    text = (SERVICE / "levels.service").read_text()
    (tmp_path / "levels.service").write_text(text.replace("/opt/headwater/bin/headwater", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "levels.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lines_of_the_unit_that_the_page_explains_are_in_it():
    text = (SERVICE / "levels.service").read_text()
    for line in re.findall(r"`([A-Z]\w+=[^`…]*)`", PAGE):
        assert line in text


def test_the_container_file_is_made_of_instructions_and_copies_what_is_there():
    lines = [line for line in (SERVICE / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
    parts = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
    assert parts.keys() <= INSTRUCTIONS
    assert lines[0].startswith("FROM python:3.")
    assert (SERVICE / parts["COPY"].split()[0]).exists()
    assert json.loads(parts["ENTRYPOINT"]) == ["headwater"]
    assert json.loads(parts["CMD"])[:2] == ["run", parts["COPY"].split()[1]]  # the exec form, so that signals arrive


def test_sigterm_drains_the_service_and_its_metrics_have_the_names_of_the_page(unit, tmp_path, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with broker() as url:
        monkeypatch.setenv("BROKER", url)
        words = [str(port) if word == "9100" else word for word in words_of(unit)]
        service = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            publish_until_taken(url, port)
            seen = metrics(port)
            service.send_signal(signal.SIGTERM)
            out, said = service.communicate(timeout=PATIENCE_S)
        finally:
            service.kill()
            service.communicate()
    assert service.returncode == 0, said
    report = json.loads(out)
    assert report["left"] == 0
    assert report["records_out"]["alarms"] >= 1
    assert report["records_out"]["table"] >= 1  # the window was closed on the way out
    for name in set(re.findall(r"headwater_\w+", PAGE)):
        assert name in seen


def publish_until_taken(url, port):
    """Publish low levels until the service has taken one; it may not have subscribed yet when the first ones come."""
    schema = {"tank": str, "height": float, "at": "time"}
    writer = io.Mqtt(url, "tanks/{tank}/level", qos=1).open(io.Items([], schema).schema)
    until = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until:
            level = {"tank": "north", "height": 120.0, "at": datetime.now(UTC)}
            writer.write(io.Items([level], schema).open(pytest.fail).read(1, 0))
            taken = re.search(r'headwater_records_in_total\{flow="levels",step="low"\} ([\d.]+)', metrics(port))
            if taken and float(taken[1]) > 0:
                return
            time.sleep(0.1)
    finally:
        writer.close()
    pytest.fail("the service took no record")


def metrics(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""  # not up yet
