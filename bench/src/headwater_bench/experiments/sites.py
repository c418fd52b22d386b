"""Figure 12 of Storm-RTS: ETL, STATS and PRED, each promised a rate, on a cloud and three cheaper edges that fill up.

Sites, coordinators and SCAN are processes of this machine. What each site can promise is a share of it, held by the site's
own ledger; rates are scaled to that. The policy is the paper's MinCost. In the end what came out is read back and held
against a run on one engine, and what was paid against the cheapest way there was at each moment.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.cli.locate import find_flow
from headwater_bench.experiments.rows import write_rows
from headwater_bench.sites import serverless
from headwater_bench.sites.account import (
    Kept,
    Moment,
    Output,
    compared,
    cost,
    least,
    messages_done,
    paid,
    where,
    windows_kept,
)
from headwater_bench.sites.flows import EDGES, RATES, SENSORS, Promised, promised
from headwater_bench.sites.pauses import Span, pauses_of, waits_of
from headwater_bench.sites.picture import draw
from headwater_bench.sites.world import World

_BOUND_S = 3.0  #: the promised latency: two bridges, and a move
_LOOK_S = 0.25
_READ_S = 0.01  #: between two looks at what was written
_ROOM = 1.05  #: beyond what flows need, at a site that has room for them
_PATIENCE_S = 60.0


def run(
    quick: bool = False,
    output: Path | None = None,
    phase_s: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Play the acts, each for `phase_s` seconds after all flows have settled."""
    lasts_s = phase_s or (10.0 if quick else 60.0)
    with tempfile.TemporaryDirectory(prefix="hw-sites-") as name:
        folder = Path(name)
        tell("measuring what each promise takes")
        flows = sorted((promised(each, folder / each, _BOUND_S) for each in RATES), key=lambda flow: flow.cores)
        world = World(folder, flows, settle="1s", rest="15s", every="100 ms")
        play = _Play(world, flows, lasts_s, tell)
        try:
            play.act()
            world.finish()
        except BaseException:
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "log", output / "sites.log")
            raise
        finally:
            play.close()
            world.close()
        for flow in flows:
            engine.run(find_flow(f"{flow.program}:undisturbed"))
        tell("the same flows as best-effort serverless at edge1")
        beside = serverless.played(flows, lasts_s, *play.edge1())
        return _answer(play, flows, beside, output)


class _Play:
    """The acts, while somebody watches."""

    def __init__(self, world: World, flows: list[Promised], lasts_s: float, tell: Callable[[str], None]) -> None:
        self.world, self._flows, self._lasts_s, self._tell = world, flows, lasts_s, tell
        self.moments: list[Moment] = []
        self.acts: list[tuple[float, str]] = []
        self.outputs = {flow.name: Output(flow.folder / "moved.jsonl") for flow in flows}
        self.needed = {flow.name: flow.cores for flow in flows}
        self.as_in_paper: list[bool] = []  #: whether flows came to be where the paper has them, act by act
        self._here: set[str] = set()
        self._places: dict[str, str | None] = {}  #: where each flow was when it was last looked
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=each, name=each.__name__, daemon=True) for each in (self._watching, self._reading)
        ]

    def act(self) -> None:
        """Play the paper's acts: the cloud alone, edges appear, SCAN takes edge1, then more of it, then edge2."""
        world, least_, middle, most = self.world, *self._flows
        every = least_.cores + middle.cores + most.cores
        for flow in self._flows:
            world.lend(f"{SENSORS}-{flow.name}", _ROOM * flow.sensors)
        rooms = {"cloud": every, "edge1": every, "edge2": least_.cores + middle.cores, "edge3": least_.cores}
        for site, cores in rooms.items():
            world.lend(site, _ROOM * cores)
        world.start_sites(SENSORS, "cloud")
        self._here = {SENSORS, "cloud"}
        world.start_flows("min-cost")
        started = dict.fromkeys(self.needed, "cloud")
        world.wait(lambda: world.sites() == started, "flows that run in the cloud")
        for thread in self._threads:
            thread.start()
        self._note("cloud alone")
        self._settled(started, "the flows run in the cloud")
        world.start_sites(*EDGES)
        world.wait(self._edges_are_here, "the edges")
        self._here |= {*EDGES}
        self._note("edges appear")
        self._settled(dict.fromkeys(self.needed, "edge1"), "all are at edge1, the cheapest")
        self._scan("edge1", middle.cores + most.cores, "SCAN at edge1")
        where = {least_.name: "edge2", middle.name: "edge1", most.name: "edge1"}
        self._settled(where, f"{least_.name}, the smallest, is at edge2")
        self._scan("edge1", most.cores, "more SCAN")
        where |= {middle.name: "edge2"}
        self._settled(where, f"{middle.name} is at edge2 too")
        self._scan("edge2", middle.cores, "SCAN at edge2")
        self._settled(where | {least_.name: "edge3"}, f"{least_.name} is at edge3")

    def edge1(self) -> tuple[float, list[float]]:
        """Return the cores that the cheapest edge has, and those that SCAN wants of it more, act by act."""
        least_, middle, most = (flow.cores for flow in self._flows)
        return _ROOM * (least_ + middle + most), [0.0, _ROOM * least_, _ROOM * middle]

    def _edges_are_here(self) -> bool:
        for flow in self._flows:
            status = self.world.status(flow)
            here = {site["name"] for site in status["sites"] if site["here"]} if status else set()
            if not here >= set(EDGES):
                return False
        return True

    def _scan(self, site: str, share: float, what: str) -> None:
        self.world.scan(self.world.lent[site] - _ROOM * share)
        self.world.lend(site, _ROOM * share)
        self._note(what)

    def _settled(self, expected: dict[str, str], what: str) -> None:
        """Wait until all flows are where they should be, and let them be there for a while.

        On a machine that is too busy promises are broken, and the policy has more to do than the paper's: then the play goes
        on after a while all the same.
        """
        until_s, places = time.monotonic() + _PATIENCE_S, self._places
        while places != expected and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            places = self._places  # whoever asks a coordinator keeps it from its work: one does
        self.as_in_paper.append(places == expected)
        self._tell(what if places == expected else f"not as in the paper: {places}")
        time.sleep(self._lasts_s)

    def _note(self, what: str) -> None:
        self.acts.append((time.time(), what))

    def _watching(self) -> None:
        while not self._over.wait(_LOOK_S):
            now_s = time.time()
            self._places = self.world.sites()
            self.moments.append(Moment(now_s, self._places, dict(self.world.lent), frozenset(self._here)))

    def _reading(self) -> None:
        while not self._over.wait(_READ_S):
            for output in self.outputs.values():
                output.look(time.time())

    def close(self) -> None:
        """Look away."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()


def _answer(play: _Play, flows: list[Promised], beside: dict[str, Any] | None, output: Path | None) -> dict[str, Any]:
    until_s = play.moments[-1].at_s
    windows = {flow.name: windows_kept(flow, play.outputs[flow.name], until_s) for flow in flows}
    verdicts = {flow.name: compared(flow) for flow in flows}
    moved = {flow.name: [each for each in decisions_on(flow) if each["came"]] for flow in flows}
    decisions = [each for each_flow in moved.values() for each in each_flow]
    _note_pauses(play, flows, moved)
    spent = paid(play.moments, play.needed)
    answer = {
        "kept": sum(each.kept for each in windows.values()) / max(1, sum(each.windows for each in windows.values())),
        "lost": sum(lost for lost, _ in verdicts.values()),
        "twice": sum(twice for _, twice in verdicts.values()),
        "cost_over_best": round(spent.over_best, 4),
        "cost_of_waiting": round(spent.waiting, 4),
        "cost_of_moving": round(spent.moving, 4),
        "moves": sum(not each["came"]["undone"] for each in decisions),
        "gap_ms": _middle_and_most(each["came"]["pause_s"] for each in decisions),
        "longest_ms": _middle_and_most(each["came"]["longest_s"] for each in decisions),
        "usual_ms": _middle_and_most(each["came"]["usual_s"] for each in decisions),
        "stopped_ms": _middle_and_most(each["came"]["gap_s"] for each in decisions),
        "as_in_paper": sum(play.as_in_paper) / len(play.as_in_paper),
        "flows": {flow.name: _flow_row(flow, windows[flow.name], verdicts[flow.name]) for flow in flows},
        "serverless": beside,
        "acts": [{"at_s": round(at_s - play.acts[0][0], 1), "what": what} for at_s, what in play.acts],
        "decisions": [{key: each[key] for key in ("why", "moves", "forced", "came")} for each in decisions],
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        done_of = {flow.name: messages_done(flow, play.outputs[flow.name]) for flow in flows}
        draw(play.moments, done_of, play.needed, play.acts, beside, output / "sites.png")
        rows = [
            {"at_s": round(m.at_s - play.acts[0][0], 2), **m.sites, "cost": cost(at, play.needed)}
            | {"least": least(m.lent, m.here, play.needed)}
            for m, at in zip(play.moments, where(play.moments), strict=True)
        ]
        write_rows(rows, output / "sites.csv")
        answer["picture"] = str(output / "sites.png")
    return answer


def _note_pauses(play: _Play, flows: list[Promised], moved: dict[str, list[dict[str, Any]]]) -> None:
    """Note with each move the longest pause that it has caused any record, by when those came out."""
    spans = {name: [Span(each["at_s"], each["came"]["at_s"]) for each in moves] for name, moves in moved.items()}
    every = [span for each in spans.values() for span in each]
    for flow in flows:
        pauses = pauses_of(waits_of(flow, play.outputs[flow.name]), spans[flow.name], every)
        for each, pause in zip(moved[flow.name], pauses, strict=True):
            lengths = {"pause_s": pause.caused_s, "longest_s": pause.longest_s, "usual_s": pause.usual_s}
            each["came"] |= {name: round(seconds, 4) for name, seconds in lengths.items()}


def _middle_and_most(seconds: Iterable[float | None]) -> dict[str, float]:
    values_ms = [1000 * each for each in seconds if each is not None]
    return {"p50": round(statistics.median(values_ms), 1), "max": round(max(values_ms), 1)} if values_ms else {}


def _flow_row(flow: Promised, windows: Kept, verdict: tuple[int, int]) -> dict[str, Any]:
    row = {
        "promised": str(flow.contract),
        "cores": round(flow.cores, 3),
        "kept": windows.kept,
        "windows": windows.windows,
    }
    return row | {"lost": verdict[0], "twice": verdict[1]}


def decisions_on(flow: Promised) -> list[dict[str, Any]]:
    """Return the decisions on a flow, each as it was told last: again when it is over, and when that was measured."""
    file = flow.folder / "state" / "journal.jsonl"
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return list({each["id"]: each for each in lines}.values())


def table(answer: dict[str, Any]) -> str:
    """Say it in words."""
    gap, stopped = answer["gap_ms"], answer["stopped_ms"]
    lines = [
        f"{answer['kept']:.2%} of the windows kept, {answer['lost']} records lost, {answer['twice']} twice",
        f"{answer['moves']} moves, cost {answer['cost_over_best']:.3f} times the least possible with hindsight; "
        f"in {answer['as_in_paper']:.0%} of the acts flows came to be where the paper has them",
    ]
    lines.append(
        f"what was paid too much: {answer['cost_of_waiting']:.1%} of the least while the policy waited, "
        f"{answer['cost_of_moving']:.1%} while flows moved"
    )
    if answer["serverless"] is not None:
        lines.append(
            f"best-effort serverless at edge1 beside it: {answer['serverless']['kept']:.2%} of the windows kept"
        )
    if gap:
        lines.append(f"a record came later by {gap['p50']:g} ms in the middle move, by {gap['max']:g} ms at most")
        longest, usual = answer["longest_ms"], answer["usual_ms"]
        lines.append(
            f"the slowest around a move took {longest['p50']:g} ms in the middle move, {longest['max']:g} ms at most; in as "
            f"long a time without a move that is {usual['p50']:g} ms"
        )
        lines.append(
            f"not all parts were at work for {stopped['p50']:g} ms in the middle move, {stopped['max']:g} ms at most"
        )
    for name, flow in answer["flows"].items():
        line = f"{name}: {flow['promised']} with {flow['cores']:.2f} cores; {flow['kept']} of {flow['windows']} windows kept"
        lines.append(line)
    lines += [f"{act['at_s']:6.1f} s  {act['what']}" for act in answer["acts"]]
    return "\n".join(lines)
