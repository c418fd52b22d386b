"""Large state that moves while sites and coordinators are killed: real processes, struck at known moments of a move."""

import json
from contextlib import suppress

import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import RunError
from headwater.processes import family, kill
from headwater_bench.moves.sites import agent_of, net_of
from sites_of import running, wait_for
from waiting import gone, wait_until

#: each key has a long text, which records change at its end; what comes out tells all of it
FLOW = """
import time
from pathlib import Path
from zlib import crc32

from headwater import Flow, io
from headwater.data.batch import NO_WATERMARK, Batch

FOLDER, KEYS, SIZE = Path({folder!r}), {keys}, {size}
FEW, REST = 7, 20 * KEYS  # keys that change while state moves; records after which all are looked at again
ROWS = [{{"n": n, "key": n % (KEYS if n < KEYS or n >= REST else FEW)}} for n in range(REST + KEYS)]


class Slow(io.Items):
    def open(self, reject, position=None):
        reader = super().open(reject, position)
        read = reader.read

        def slowly(limit, timeout_s):
            if reader.position < KEYS or (FOLDER / "hurry").exists():
                return read(limit, timeout_s)
            time.sleep(0.02)
            return Batch.of_watermark(NO_WATERMARK) if reader.position > REST - 10 else read(2, timeout_s)

        reader.read = slowly
        return reader


def seen(state, record):
    count, text = state or (0, f"{{record['key']:08}}" * (SIZE // 8))
    text = text[:-8] + f"{{crc32(text.encode()):08x}}"
    return (count + 1, text), record | {{"seen": count + 1, "state": crc32(text.encode())}}


def made(out):
    flow = Flow("texts")
    rows = flow.read("rows", Slow(ROWS, {{"n": int, "key": int}}))
    texts = rows.key_by("key").process("seen", seen, out={{"n": int, "key": int, "seen": int, "state": int}})
    texts.write("archive", io.JsonLines(FOLDER / f"{{out}}.jsonl"))
    return flow


def moved():
    return made("moved")


def undisturbed():
    return made("undisturbed")
"""
SITES = ("gate", "left", "right")


class Farm:
    """A step with large state, between a site that stays as it is and one of two that it moves between."""

    def __init__(self, commands, keys, size):
        self.commands, self.folder = commands, commands.folder
        (self.folder / "texts.py").write_text(FLOW.format(folder=str(self.folder), keys=keys, size=size))
        (self.folder / "net.toml").write_text(net_of(SITES, way_s=0.001))
        placed = {"rows": "gate", "seen": "left", "archive": "gate"}
        plan = {"flow": "texts.py:moved", "net": "net.toml", "placement": placed}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        self.state = StateFolder(self.folder / ".headwater" / "deploy")
        self.up = commands.start("up", "net.toml", "--no-namespaces")
        self.coordinator = commands.start("deploy", "plan.json", "--within", "180s", "--every", "100ms")
        self.at, self.keys = "left", keys
        wait_for(self.has_all, commands, "large state")

    def has_all(self):
        """Say whether the flow runs, and every key has its text."""
        lines = self.folder / "moved.jsonl"
        return running(self.commands) and lines.exists() and lines.read_text().count("\n") >= self.keys

    @property
    def target(self):
        return "right" if self.at == "left" else "left"

    def site(self, name):
        return self.state.path / "sites" / name

    def agent(self, name):
        """Return the process of a site."""
        return agent_of(self.up.pid, name)

    def begin(self):
        """Begin a move to the other site, and return what it is called."""

        def begun():
            try:
                return ask(self.state, Ask("move", ["seen"], self.target))["flow"]["moves"][-1]["id"]
            except NobodyError:
                return None
            except RunError as error:
                if "are not here" not in str(error):
                    raise
                return None

        return wait_for(begun, self.commands, "a move")

    def kill(self, who):
        """Kill somebody with all that he has started; a coordinator is started again, as `up` does with sites."""
        if who == "coordinator":
            self.coordinator.kill()
            self.coordinator.wait()
            self.coordinator = self.commands.start("deploy", "--within", "180s")
            return
        kill(family(wait_for(lambda: self.agent(who), self.commands, f"site '{who}'")))

    def settled(self):
        """Wait until the flow runs with all sites here, and return where the step is, and at that site alone."""

        def found():
            said = running(self.commands)
            return said if said and all(site["here"] for site in said["sites"]) else None

        said = wait_for(found, self.commands, "a flow that runs after somebody was killed")
        places = [site["name"] for site in said["sites"] if "seen" in site["steps"]]
        assert len(places) == 1, said
        self.at = places[0]
        return said

    def finish(self):
        """Have the flow come to its end; say whether all is as where nothing was moved."""
        (self.folder / "hurry").touch()
        assert self.coordinator.wait(300) == 0, self.commands.logs()
        engine.run(find_flow(f"{self.folder}/texts.py:undisturbed"))
        found = [(self.folder / f"{name}.jsonl").read_text().splitlines() for name in ("moved", "undisturbed")]
        return sorted(found[0]) == sorted(found[1])

    # -- moments of a move ------------------------------------------------------------------------------------------------

    def pieces(self, move):
        """Some state has come, and not all."""
        return any(self._large(self.site(self.target) / "ahead" / move, "*.new"))

    def is_there(self, move):
        """All state has come; the part that it is from may still run."""
        return any(path.suffix != ".new" for path in self._large(self.site(self.target) / "ahead" / move, "*"))

    def cut(self, move):
        """The old part is told to stop."""
        moving = self.state.read().deployed.moving
        return moving is None or moving.cut

    def hand_over(self, move):
        """The new site has begun to lay out what it was handed."""
        return (self.site(self.target) / "flows" / move / "checkpoint").exists() or self.over(move)

    def over(self, move):
        """No way leads back from here."""
        return self.state.read().deployed.id == move

    @staticmethod
    def _large(folder, pattern):
        for path in folder.glob(pattern):
            with suppress(FileNotFoundError):
                if path.stat().st_size:
                    yield path


MOMENTS = ("pieces", "is_there", "cut", "hand_over", "over")


def strike(farm, moment, who):
    """Move the step, and kill somebody as soon as a moment has come; return where the step is when all is well again."""
    source, target = farm.at, farm.target
    move = farm.begin()
    wait_until(lambda: getattr(farm, moment)(move), moment, 120, 0.0005, farm.commands.logs)
    farm.kill({"source": source, "target": target}.get(who, who))
    return farm.settled()


def left_behind(farm):
    """Return what sites keep of moves that are over."""
    return [
        str(path) for name in SITES for folder in ("ahead", "warm") for path in (farm.site(name) / folder).glob("*")
    ]


#: when a move is struck, and whom; at home moves are struck without processes, in test_machine.py
CASES = [(moment, who) for moment in MOMENTS for who in ("source", "target", "coordinator")]


@pytest.mark.thorough
def test_large_state_is_in_one_place_whoever_is_killed_while_it_moves(commands):
    farm = Farm(commands, keys=600, size=40_000)
    for moment, who in CASES:
        strike(farm, moment, who)
    farm.begin()
    said = farm.settled()
    assert said["flow"]["moved"]["ahead_bytes"] > 600 * 40_000, said  # the state that was moved is large
    agents = [pid for name in SITES for pid in family(farm.agent(name))]
    assert farm.finish(), commands.logs()
    assert left_behind(farm) == []
    farm.up.terminate()
    farm.up.wait(300)
    wait_until(lambda: all(map(gone, agents)), "the end of all processes")
