"""A server as a user starts it: a process of its own, asked over HTTP."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.rate.client import connected
from headwater.rate.peer import peer
from headwater.serve.routes import matching_route
from headwater.serve.schemas import SCHEMAS
from waiting import PATIENCE_S, wait_until


class Serving:
    """`headwater serve` of a folder, with its state beside it."""

    def __init__(self, folder):
        self.folder = folder / "flows"
        self.state = folder / "state"
        self.folder.mkdir()
        self.environment = {**os.environ, "HEADWATER_RUNTIME": str(folder / "run")}
        self.process = None
        self.said = folder / "said"

    def write(self, name, text, settings=None):
        """Put a flow into the folder, as an editor does: whole, under another name first."""
        for ending, content in ((".py", text), (".toml", settings)):
            if content is not None:
                new = self.folder / f".{name}{ending}.new"
                new.write_text(content)
                new.replace(self.folder / f"{name}{ending}")

    def command(self, *words):
        return [sys.executable, "-c", "from headwater.cli import main; main()", *map(str, words)]

    def start(self, *words, ready=True):
        options = ("--state", self.state, "--listen", "127.0.0.1:0")
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                self.command("serve", self.folder, *options, *words),
                stdout=subprocess.PIPE,
                stderr=said,
                env=self.environment,
                cwd=self.folder.parent,
            )
        if ready:
            self.until(lambda: self.ask("/readyz")[0] == 200)
        return self

    def typed(self, *words):
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, env=self.environment, timeout=PATIENCE_S, check=False
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def note(self):
        return json.loads((self.state / "server.json").read_text())

    @property
    def token(self):
        return (self.state / "token").read_text().strip()

    def ask(self, path, method="GET", body=None, **head):
        """Return status and document; (None, None) while nobody answers."""
        try:
            at = urlsplit(self.note["url"])
            line = http.client.HTTPConnection(at.hostname, at.port, timeout=PATIENCE_S)
            sent = None if body is None else json.dumps(body)
            usual = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            with contextlib.closing(line):
                line.request(method, path, sent, usual | head)
                answer = line.getresponse()
                text = answer.read()
        except (OSError, ValueError, http.client.HTTPException):
            return None, None
        if answer.headers["Content-Type"] != "application/json":
            return answer.status, text.decode()
        document = json.loads(text)
        check_described(method, path.partition("?")[0], answer.status, document)
        return answer.status, document

    def flow(self, name):
        return self.ask(f"/api/v1/flows/{name}")[1] or {}

    def state_of(self, name):
        return self.flow(name).get("state")

    def until(self, true, what=""):
        def met():
            if self.process is not None and self.process.poll() is not None:
                pytest.fail(f"the server has ended: {self.said.read_text()}")
            return true()

        return wait_until(met, what or "it", PATIENCE_S, 0.05, lambda: f"; the server said: {self.said.read_text()}")

    def until_running(self, name, but=None):
        """Wait until a flow runs, in another process than `but`; return the process."""
        return self.until(
            lambda: (f := self.flow(name)).get("state") == "running" and f["pid"] != but and f["pid"], f"{name} runs"
        )

    def stop(self, number=signal.SIGTERM):
        """End the server by a signal and return its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                for flow in self.ask("/api/v1/flows")[1] or ():
                    if flow["pid"]:
                        os.kill(flow["pid"], signal.SIGKILL)
            self.process.kill()
            self.process.communicate()
        if (line := connected(Path(self.environment["HEADWATER_RUNTIME"]))) is not None:
            with line:  # a supervisor of promises, which would wait for others for a minute
                os.kill(peer(line)[0], signal.SIGTERM)


def check_described(method, path, status, document):
    """Hold an answer against what the OpenAPI document says of it."""
    route, _ = matching_route(method, path)
    described = "Error" if status >= 400 and not route.public else route.gives
    check_fits(document, {"$ref": f"#/components/schemas/{described}"}, f"{method} {path}")


def check_fits(value, schema, where, schemas=SCHEMAS):
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        nothing = {"type": "null"}
        assert nothing in schema["anyOf"]
        if value is not None:
            check_fits(value, next(each for each in schema["anyOf"] if each != nothing), where, schemas)
        return
    types = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "object": dict, "array": list}
    assert isinstance(value, types[schema["type"]] if "type" in schema else object), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    for name in schema.get("required", ()):
        assert name in value, (where, name)
    if schema.get("type") == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
        for name, each in value.items():
            check_fits(each, known.get(name, others), f"{where} {name}", schemas)
    for each in value if schema.get("type") == "array" else ():
        check_fits(each, schema.get("items", {}), where, schemas)
