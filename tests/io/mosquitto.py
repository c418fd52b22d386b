"""A real mosquitto on a port of its own, with its own client programs as witnesses."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import psutil
import pytest

from ports import free_port
from waiting import PATIENCE_S

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


class Mosquitto:
    """A broker process that can be killed and started again; `lines` are added to its configuration."""

    def __init__(self, folder, *lines, scheme="mqtt"):
        if PROGRAM is None:
            pytest.skip("mosquitto is not installed")
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        os.chmod(folder, 0o777)  # started by root, mosquitto makes itself a nobody
        self._file, self._process = folder / "mosquitto.conf", None
        given = [f"listener {self.port} 127.0.0.1", *lines]
        if not any(line.startswith("password_file") for line in lines):
            given.append("allow_anonymous true")
        self._file.write_text("\n".join([*given, f"user {os.environ.get('USER', 'root')}", ""]))

    def start(self):
        self._process = subprocess.Popen(
            [PROGRAM, "-c", self._file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert self._process.poll() is None, "mosquitto ended at once"
                assert time.monotonic() < end, "mosquitto did not start"
                time.sleep(0.02)

    def kill(self):
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)

    def _end(self, how):
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(PATIENCE_S)

    def is_waiting(self):
        """Say whether it sleeps until something comes, rather than that nobody lets it work."""
        return psutil.Process(self._process.pid).status() == psutil.STATUS_SLEEPING

    def published(self, topic, *payloads, qos=1, retain=False, version="311"):
        """Publish lines with mosquitto's own client.

        They are in a file and not in a pipe, whose writing end a child that is forked meanwhile would have, and keep open.
        """
        retained = ["-r"] if retain else []
        command = ["mosquitto_pub", "-p", str(self.port), "-t", topic, "-q", str(qos), "-V", version, "-l", *retained]
        with tempfile.TemporaryFile("w+") as lines:
            lines.write("\n".join(payloads) + "\n")
            lines.seek(0)
            subprocess.run(command, stdin=lines, check=True, timeout=PATIENCE_S)

    def listening(self, topic, count, qos=2, version="311"):
        """Start mosquitto's own subscriber; its standard output has `count` lines of topic and payload."""
        command = [
            *("stdbuf", "-oL", "mosquitto_sub", "-p", str(self.port), "-t", topic, "-q", str(qos), "-V", version),
            *("-C", str(count), "-v", "-W", str(PATIENCE_S), "-d"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout:
            if "Subscribed" in line or "SUBACK" in line:
                break
        return process


def heard(process):
    """Return the topics and payloads that a subscriber heard."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    lines = [line for line in out.splitlines() if not line.startswith(("Client ", "Subscribed"))]
    return [tuple(line.split(" ", 1)) for line in lines]
