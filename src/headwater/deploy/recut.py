"""A flow cut anew: the checkpoints of its old parts become those of its new ones.

Each step takes its state along. What was on its way over a bridge, in the sender's log and not in the receiver's checkpoint,
is put into the queues of the steps that were to read it; the new bridges begin empty. Sinks stay at their sites, and so do
sources that are there alone: what they have noted there holds for the number of the last checkpoint at that site, which is
kept.

Parts none of whose steps comes or goes run on. What was on its way to them goes along with the step that made it, under the
numbers that it had; what they have sent comes to whoever reads it now, from where on it was not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.frames import pack, unpack_frame
from headwater.deploy.ahead import PassingDisk
from headwater.deploy.cut import Crossing, Cut
from headwater.deploy.state_transfer import Waiting, note_waiting, waiting
from headwater.engine.checkpoint.in_flight import enqueue
from headwater.engine.checkpoint.instances import of_instances
from headwater.engine.checkpoint.recovery import VERSION
from headwater.engine.checkpoint.store import Checkpoint, Store
from headwater.errors import PlacementError, listed, suggestion
from headwater.flow.endpoints import may_move, resume_of
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.steps import Read, Step

_MOVED = "moved"  #: stands for the life of a sender that has not begun yet


def check_move(flow: Flow, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise PlacementError for a move that cannot be: of a source or a sink, or to a cut that cannot be."""
    moved = [name for name, step in flow.steps.items() if _stays(step) and before[name] != after[name]]
    if moved:
        name, at = moved[0], before[moved[0]]
        raise PlacementError(f"step '{name}' of flow '{flow.name}' is {_why_it_stays(flow.steps[name], at)}")
    Cut(flow, after)


def _stays(step: Step) -> bool:
    return step.is_sink or (isinstance(step.kind, Read) and not may_move(step.kind.source))


def _why_it_stays(step: Step, at: str) -> str:
    """Say what a source or a sink that stays has at its site, and what can be done about it."""
    anew = "headwater stop --forget ends the flow, with its state; then deploy another plan"
    if not isinstance(step.kind, Read):
        why = "what it has written is noted there, so that nothing is there twice"
        return f"a sink, which stays at site '{at}': {why}. Move the steps before it; to write elsewhere, {anew}"
    source = f"a source, which stays at site '{at}'"
    match resume_of(step.kind.source):
        case "position":
            advice = "One whose address is reached from every site may say so, anywhere = True, and moves then"
            return f"{source}: what it reads may be there alone. {advice}"
        case "sender":
            why = "what came from its sender (a broker, say) and is not in a checkpoint yet is noted there"
        case _:
            why = "it could not go on elsewhere behind what it has read"
    return f"{source}: {why}. Move the steps behind it; to read from elsewhere, {anew}"


def recut(
    flow: Flow,
    before: Mapping[str, str],
    after: Mapping[str, str],
    folders: Mapping[str, Path],
    into: Mapping[str, Path],
    go_on: Collection[str] = (),
) -> None:
    """Write the checkpoints from which the parts of a new cut go on.

    `folders` have what has travelled from the sites that ran a part, `into` new folders for those that will: to be
    made safe where they go, since here they are not. Where nothing was kept, nothing is written: such a part begins anew.
    Sites that `go_on` run the parts that they have meanwhile, see `going_on`: of them nothing has travelled.
    """
    check_move(flow, before, after)
    old, new = Cut(flow, before), Cut(flow, after)
    latest = {site: Store(folders[site], PassingDisk()).latest() for site in old.sites if site in folders}
    checkpoints = {site: None if each is None else of_instances(each, flow) for site, each in latest.items()}
    for crossing in old.crossings:
        if crossing.origin not in go_on and crossing.target not in go_on:
            _deliver(old, crossing, _under_way(crossing, folders, checkpoints), checkpoints)
    logs = {
        crossing.stream: _log(crossing, folders, checkpoints)
        for crossing in old.crossings
        if crossing.target in go_on and crossing.origin not in go_on
    }
    for site in new.sites:
        if site not in go_on:
            _write(_Recut(old, new, checkpoints, logs, go_on), site, into[site])


def going_on(flow: Flow, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the sites whose parts can run on through a move: none of their steps comes or goes.

    Where their streams go to and come from may change. Not so where steps meet at a site that read a stream at several
    sites before: they have come differently far with it. Nor where dead letters are read, which come from every site.
    """
    old, new = Cut(flow, before), Cut(flow, after)
    if DEAD_LETTERS in flow.steps:
        return []
    steps = [
        {site: {name for name, at in cut.site_of.items() if at == site} for site in cut.sites} for cut in (old, new)
    ]
    same = [site for site in old.sites if steps[0][site] == steps[1].get(site)]
    mixed = {each.origin for each in new.crossings if len({old.site_of[name] for name in _readers(new, each)}) > 1}
    return [site for site in same if site not in mixed]


def _readers(cut: Cut, crossing: Crossing) -> list[str]:
    """Return the steps that read a stream at the site that it crosses to."""
    return [
        step.name
        for step in cut.flow.steps.values()
        if cut.site_of[step.name] == crossing.target
        and any((each.step, each.port) == (crossing.step, crossing.port) for each in step.inputs)
    ]


# -- what was on its way --------------------------------------------------------------------------------------------------


def _log(crossing: Crossing, folders: Mapping[str, Path], checkpoints: Mapping[str, Checkpoint | None]) -> Waiting:
    """Return what is to be sent on, of a stream to a site that goes on, with what waited before the bridge."""
    sender = checkpoints.get(crossing.origin)
    if sender is None:
        return Waiting()
    log = waiting(folders[crossing.origin], crossing.outlet)
    more = [each for task in sender.content["tasks"].get(crossing.outlet, []) for each in _before(task)]
    messages = [(log.end + number, pack(message)) for number, message in enumerate(more)]
    return Waiting(log.first, log.end + len(more), [*log.messages, *messages])


def _under_way(
    crossing: Crossing, folders: Mapping[str, Path], checkpoints: Mapping[str, Checkpoint | None]
) -> list[Batch]:
    """Return what was sent for good, and is not in the receiver's checkpoint: records, and words about event time."""
    sender, receiver = checkpoints.get(crossing.origin), checkpoints.get(crossing.target)
    if sender is None:
        return []
    positions = [] if receiver is None else receiver.content["positions"].get(crossing.inlet, [])
    start = positions[0]["next"] if positions and positions[0] else 0
    messages = waiting(folders[crossing.origin], crossing.outlet).messages
    batches = [unpack_frame(frame) for number, frame in messages if number >= start]
    return batches + [each for task in sender.content["tasks"].get(crossing.outlet, []) for each in _before(task)]


def _before(outlet: Mapping[str, Any]) -> list[Batch]:
    """Return what waited before a bridge: where a checkpoint took too long, tasks were saved with their queues.

    Of several senders none says alone how far event time has come; that comes again with what they send next.
    """
    messages: list[Batch] = []
    for _, batch, watermark in outlet["queue"]:
        if batch is not None:
            messages.append(Batch(batch.columns, batch.length, batch.stamps))
        if NO_WATERMARK < watermark < END and len(outlet["ports"]) == 1:
            messages.append(Batch.of_watermark(watermark))
    return messages


def _deliver(old: Cut, crossing: Crossing, messages: list[Batch], checkpoints: Mapping[str, Checkpoint | None]) -> None:
    """Put messages into the queues of the steps that were to read them at the other site."""
    if not messages:
        return
    receiver = checkpoints[crossing.target]
    if receiver is None:
        raise PlacementError(
            f"the part at site '{crossing.target}' has made no checkpoint yet, and records are on their way to it; "
            "try again in a moment"
        )
    there = {
        name: tasks for name, tasks in receiver.content["tasks"].items() if old.site_of.get(name) == crossing.target
    }
    enqueue(old.flow, there, crossing.step, crossing.port, messages)


# -- the new parts --------------------------------------------------------------------------------------------------------


class _Recut(NamedTuple):
    """What the checkpoints of the new parts are made from."""

    old: Cut
    new: Cut
    checkpoints: Mapping[str, Checkpoint | None]  #: of the old parts, but for those that go on
    logs: Mapping[str, Waiting]  #: of streams to sites that go on, which their new senders take over
    go_on: Collection[str]


def _write(move: _Recut, site: str, into: Path) -> None:
    old, new, checkpoints = move.old, move.new, move.checkpoints
    here = checkpoints.get(site)
    names = [name for name, at in new.site_of.items() if at == site and name != DEAD_LETTERS]
    places = [(name, checkpoints.get(old.site_of[name])) for name in names]
    places += [(name, here) for name in _own(old, here)]
    crossings = {each.outlet: each for each in new.crossings if each.origin == site and each.stream in move.logs}
    places += [(outlet, checkpoints.get(old.site_of[each.step])) for outlet, each in crossings.items()]
    content: dict[str, Any] = {"steps": {}, "sources": {}, "positions": {}, "tasks": {}}
    states: list[bytes] = []
    for name, origin in places:
        if origin is None or name not in origin.content["steps"]:
            continue
        content["steps"][name] = origin.content["steps"][name]
        if name in origin.content["positions"]:
            content["positions"][name] = origin.content["positions"][name]
            content["sources"][name] = origin.content["sources"][name]
        for task in origin.content["tasks"].get(name, []):
            at = len(states)
            states += [task["state"], *task["changes"]]  # as they are: the run that goes on puts them together
            entry = {"state": at, "whole": True, "changes": list(range(at + 1, len(states)))}
            entry |= {"queue": []} if name in crossings else {}  # what waited before a bridge is behind it by now
            content["tasks"].setdefault(name, []).append(task | entry)
    for crossing in new.crossings:
        if crossing.target == site and (position := _position(move, crossing)) is not None:
            step = {"kind": "Read", "does": str(crossing), "inputs": [], "parallel": 1}
            content["steps"][crossing.inlet] = step | {"outputs": {"out": dict(crossing.schema.fields)}}
            content["positions"][crossing.inlet] = [position]
    if not content["steps"]:
        return
    made_at = max(each.content["made"] for each in checkpoints.values() if each is not None)
    head = {"version": VERSION, "flow": old.flow.name, "made": made_at}
    if here is not None and "retired" in here.content:  # writers of its sinks in lanes that are no more
        head["retired"] = here.content["retired"]
    Store(into, PassingDisk()).write(0 if here is None else here.number, head | content, states)
    for outlet, crossing in crossings.items():
        if outlet in content["steps"]:
            note_waiting(into, outlet, move.logs[crossing.stream])


def _position(move: _Recut, crossing: Crossing) -> dict[str, Any] | None:
    """Return from where on a stream is read that goes on under the numbers that it had; None for one that begins anew."""
    if crossing.origin in move.go_on:
        before = move.checkpoints.get(move.old.site_of[_readers(move.new, crossing)[0]])
        positions = [] if before is None else before.content["positions"].get(crossing.inlet, [])
        position: dict[str, Any] | None = positions[0] if positions else None
        return position
    if crossing.stream in move.logs:  # what was sent before is in queues
        return {"life": _MOVED, "next": move.logs[crossing.stream].end, "ended": False}
    return None


def _own(old: Cut, here: Checkpoint | None) -> list[str]:
    """Return steps that a run at a site has added to its part, such as what keeps dead letters; they stay there."""
    names = {name for name in old.flow.steps if name != DEAD_LETTERS}
    bridges = {end for crossing in old.crossings for end in (crossing.inlet, crossing.outlet)}
    return [] if here is None else [name for name in here.content["steps"] if name not in names | bridges]


def movable(flow: Flow, before: Mapping[str, str], site: str) -> list[str]:
    """Return the steps of a site that can be elsewhere: all but its sinks, and sources that are there alone."""
    return [step.name for step in flow.steps.values() if before[step.name] == site and not _stays(step)]


def moved(flow: Flow, before: Mapping[str, str], names: list[str], site: str) -> dict[str, str]:
    """Return the sites of all steps once some are at another; PlacementError for a step that is none.

    The flow's own name stands for all its steps that can move.
    """
    steps: list[str] = []
    for name in names:
        if name in flow.steps:
            steps.append(name)
        elif name == flow.name:
            steps += [each for at in dict.fromkeys(before.values()) for each in movable(flow, before, at)]
        else:
            slip = suggestion(name, [*flow.steps, flow.name]) or f"; its steps are {listed(flow.steps)}"
            raise PlacementError(f"flow '{flow.name}' has no step '{name}'{slip}")
    return {**before, **dict.fromkeys(steps, site)}
