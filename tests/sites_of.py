"""Sites and coordinators as a user starts them: processes of the command line, ended when the test is over."""

import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater_bench.moves.sites import net_of
from headwater_bench.processes import end
from ports import free_port
from typed_words import exit_code
from waiting import wait_until

#: records that do not come to their end before a file is there: nothing that a test does comes too late
_SLOW = """
import time
from pathlib import Path

from headwater import Flow, Tumbling, agg, col, io
from headwater.data.batch import NO_WATERMARK, Batch

ROWS = [{{"n": n, "tank": f"t{{n % 5}}", "at": n * 10_000}} for n in range(60_000)]


class Slow(io.Items):
    def open(self, reject, position=None):
        reader = super().open(reject, position)
        read = reader.read

        def slowly(limit, timeout_s):
            if Path("{folder}/hurry").exists():
                return read(limit, timeout_s)
            time.sleep(0.02)
            return Batch.of_watermark(NO_WATERMARK) if reader.position > 50_000 else read({rate_hz} // 50, timeout_s)

        reader.read = slowly
        return reader
"""


def slow_flow(folder, rate_hz, text):
    """Return a program: `ROWS` and a source `Slow` of them, at a rate until `folder` has a file `hurry`; then a text."""
    return _SLOW.format(folder=folder, rate_hz=rate_hz) + text.format(folder=folder)


#: counts in windows
COUNTS = """
from scale import SCALE


def scaled(record):
    return record | {{"n": record["n"] * SCALE}}


def tanks(out="many"):
    flow = Flow("tanks")
    levels = flow.read("levels", Slow(ROWS, {{"n": int, "tank": str, "at": "time"}})).event_time("time", "at")
    sound = levels.map("scaled", scaled).filter("sound", col.n >= 0)
    means = sound.key_by("tank").window("means", Tumbling("1 s"), n=agg.sum("n"), records=agg.count())
    means.filter("some", col.records > 0).write("archive", io.JsonLines(f"{folder}/{{out}}.jsonl"))
    return flow


def one():
    return tanks("one")
"""
TANKS = {"levels": "barn", "time": "barn", "scaled": "barn", "sound": "shed", "means": "cloud", "some": "cloud"}


def farm(folder):
    """Write a flow that takes long, with a module beside it, a net and a plan; return the plan."""
    (folder / "farm").mkdir()
    (folder / "farm" / "tanks.py").write_text(slow_flow(folder, 1000, COUNTS))
    (folder / "farm" / "scale.py").write_text("SCALE = 3\n")
    (folder / "farm" / "farm.toml").write_text(net_of(("barn", "shed", "cloud")))
    plan = {"flow": "tanks.py:tanks", "net": "farm.toml", "placement": TANKS | {"archive": "shed"}}
    (folder / "farm" / "plan.json").write_text(json.dumps(plan))
    return folder / "farm" / "plan.json"


def as_one_engine_has_it(folder):
    (folder / "hurry").touch()
    engine.run(find_flow(f"{folder}/farm/tanks.py:one"))
    return sorted((folder / "one.jsonl").read_text().splitlines()) == sorted(
        (folder / "many.jsonl").read_text().splitlines()
    )


WAIT_S = 180.0  #: for what comes in a few seconds where nothing else is at work
#: commands that ask whoever is at work and leave; `site token` and `site revoke` are too
_ASKING = {"drain", "link", "move", "status", "stop"}


class Commands:
    """Starts commands in a folder; `close` ends what still runs, with all that it has started.

    The coordinator's address is settled before any of them: one that comes to be the first would take the usual port, at
    which that of another test may listen.
    """

    def __init__(self, folder):
        self.folder, self.started = folder, []
        state = StateFolder(folder / ".headwater" / "deploy")
        state.identity()
        state.settled_address("127.0.0.1", free_port())

    def start(self, *words, program=("-m", "headwater"), environ=None):
        """Start a command; `program` is what Python is given to run it, `environ` is added to the environment."""
        log: Path = self.folder / f"{len(self.started)}-{words[0]}.log"
        with open(log, "w") as to:
            process = subprocess.Popen(
                [sys.executable, *program, *map(str, words)], env=os.environ | (environ or {}),
                cwd=self.folder, stdout=to, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process.log = log  # type: ignore[attr-defined]
        self.started.append(process)
        return process

    def run(self, *words, code=0):
        if words[0] in _ASKING or words[:2] in (("site", "token"), ("site", "revoke")):
            found, out, err = self._typed(*words)
            said = out + err
        else:
            process = self.start(*words)
            found, said = process.wait(2 * WAIT_S), process.log.read_text()
        assert code is None or found == code, said
        return said

    def json(self, *words):
        if words[0] in _ASKING:
            found, out, err = self._typed(*words, "--json")
        else:
            done = subprocess.run(
                [sys.executable, "-m", "headwater", *map(str, words), "--json"],
                cwd=self.folder, capture_output=True, text=True, timeout=2 * WAIT_S, check=False,
            )  # fmt: skip
            found, out, err = done.returncode, done.stdout, done.stderr
        assert found == 0, out + err
        return json.loads(out)

    def _typed(self, *words):
        with chdir(self.folder), redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = exit_code(*words)
        return code, out.getvalue(), err.getvalue()

    def logs(self):
        return "\n".join(f"== {process.log.name}\n{process.log.read_text()}" for process in self.started)

    def close(self):
        end(self.started)


def wait_for(met, commands, what):
    """Wait for a condition; what all commands have said is shown where it does not come."""
    return wait_until(met, what, WAIT_S, 0.05, lambda: f":\n{commands.logs()}")


def running(commands):
    """Return what a coordinator says once all sites that have steps run and nothing is moved."""
    try:
        found = ask(StateFolder(commands.folder / ".headwater" / "deploy"), "status")
    except NobodyError:
        return None
    if not found["flow"] or found["flow"]["moving"]:
        return None
    return found if all(site["state"] == "running" for site in found["sites"] if site["steps"]) else None


def site(commands, name, *words, **how):
    """Start a site with a token of its own, which others reach by loopback."""
    (commands.folder / f"{name}.token").write_text(commands.run("site", "token", name))
    host, port = StateFolder(commands.folder / ".headwater" / "deploy").address
    where = ("--token", f"{name}.token", "--name", name, "--join", f"{host}:{port}", "--listen", "127.0.0.1")
    return commands.start("site", *where, *words, **how)


def whys(commands):
    """Return what a coordinator has to say of each site; nothing while none answers."""
    try:
        found = ask(StateFolder(commands.folder / ".headwater" / "deploy"), "status")
    except NobodyError:
        return {}
    return {each["name"]: each["why"] for each in found["sites"]}
