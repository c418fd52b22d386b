"""The part of a flow that each lane runs: a flow of its own, with inlets and outlets where records move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.data.schema import Schema
from headwater.engine.lanes.idleness import Activity, Idleness, SourceActivity
from headwater.engine.lanes.inlet import Inlet
from headwater.engine.lanes.layout import Layout, Move, To, Where
from headwater.engine.lanes.outlet import How, Outlet
from headwater.engine.lanes.ring import CAPACITY, Bell, Path, Ring, Shortcut
from headwater.engine.lanes.share import Share, SharedPosition, shared
from headwater.flow.flow import DEAD_LETTER_SCHEMA, DEAD_LETTERS, Flow
from headwater.flow.ranges import Ranges
from headwater.flow.steps import Apply, EventTime, Input, Kind, Read, Step, Write
from headwater.operators.time import EventTimeOperator

if TYPE_CHECKING:
    from headwater.engine.checkpoint.distribution import Distribution


@dataclass(slots=True)
class Crossing:
    """A place where records move: who sends, who receives, and the paths between each two of them."""

    name: str  #: tells it from others
    takers: Sequence[str]  #: the steps that take the records, each as often as it does
    schema: Schema
    how: How
    senders: Sequence[int]
    receivers: Sequence[int]
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None  #: those that are taken along; None for all
    in_order: bool = False  #: blocks of a source, to be put in order by who receives them
    time: EventTime | None = None
    #: of a source: where it is told how far it is handed out; of a stream with event time that may be silent: who tells it
    activity: SourceActivity | None = None
    source: Activity | None = None
    paths: dict[tuple[int, int], Path] = field(default_factory=dict)
    bells: dict[tuple[str, int], Bell] = field(default_factory=dict)

    @property
    def inlet_name(self) -> str:
        """What the step is called where records come in."""
        return f"{self.name} (from lanes)"

    @property
    def outlet_name(self) -> str:
        """What the step is called where records go out."""
        return f"{self.name} (to lanes)"

    def connect(self) -> None:
        """Make the paths; before the processes part."""
        self.bells = {("room", lane): Bell() for lane in self.senders} | {
            ("data", lane): Bell() for lane in self.receivers
        }
        for sender in self.senders:
            for receiver in self.receivers:
                make = Shortcut if sender == receiver else Ring
                bells = self.bells["data", receiver], self.bells["room", sender]
                self.paths[sender, receiver] = make(*bells, CAPACITY // len(self.senders))

    def outlet(self, lane: int) -> Outlet:
        """Return the end at which a lane sends."""
        paths = {receiver: self.paths[lane, receiver] for receiver in self.receivers}
        room = self.bells["room", lane]
        return Outlet(
            paths,
            room,
            self.how,
            self.keys,
            self.columns,
            blocks=self.in_order,
            time=self.time,
            activity=self.activity,
        )

    def inlet(self, lane: int) -> Inlet:
        """Return the end at which a lane receives."""
        paths = {sender: self.paths[sender, lane] for sender in self.senders}
        numbered, idleness = self.how == "blocks", None
        if self.source is not None and self.time is not None and self.time.idle_us is not None:
            idleness = Idleness(self.source, self.time.idle_us / 1e6)
        data = self.bells["data", lane]
        return Inlet(self.schema, paths, data, in_order=self.in_order, numbered=numbered, idleness=idleness)

    def waiting(self) -> int:
        """Return how many records are on their way between processes; within one, only that one can tell."""
        return sum(path.waiting() for path in self.paths.values() if isinstance(path, Ring))

    def reset(self) -> None:
        """Forget what is on its way, once no lane is at work."""
        for path in self.paths.values():
            path.reset()
        for bell in self.bells.values():
            bell.reset()
        if self.activity is not None:
            self.activity.reset()

    def close(self) -> None:
        """Give back what was opened."""
        for bell in self.bells.values():
            bell.close()


class Wiring:
    """All crossings of a flow that runs in so many lanes, and the part of it that each of them runs.

    With `share`, each lane reads a share of the sources that can be read so; the others are read in lane 0.
    """

    def __init__(self, layout: Layout, lanes: int, *, share: bool = True) -> None:
        self._layout, self.lanes = layout, lanes
        self._flow = layout.flow
        everywhere, first = range(lanes), range(1)
        of: dict[Where | To, Sequence[int]] = {"blocks": everywhere, "key": everywhere, "one": first, "all": everywhere}
        self._shares: dict[str, tuple[Ranges, SharedPosition]] = {}
        self._of_source: dict[str, Crossing] = {}
        for step in self._flow.steps.values():
            if isinstance(step.kind, Read) and layout.where[step.name] == "blocks":
                # splits are read in one place, side by side
                pair = shared(step.kind.source) if share and not step.kind.way else None
                if pair is not None:
                    self._shares[step.name] = pair
                else:
                    crossing = Crossing(step.name, self._readers(step), _main(step), "blocks", first, everywhere)
                    self._of_source[step.name] = crossing
        self._of_move = [
            Crossing(
                f"{move.readers[0][0]}, {move.number}",
                [name for name, _ in move.readers],
                layout.schema(move.edge).only(move.columns),
                move.to_where,
                of[move.from_where],
                of[move.to_where],
                move.keys,
                None if len(move.columns) == len(layout.schema(move.edge)) else move.columns,
                move.from_where == "blocks",
                move.time,
                source=self._handed_of(move),
            )
            for move in layout.moves
        ]
        letters = DEAD_LETTERS in self._flow.steps
        self._letters = (
            Crossing(DEAD_LETTERS, [DEAD_LETTERS], DEAD_LETTER_SCHEMA, "one", range(1, lanes), first)
            if letters
            else None
        )
        self.crossings = [*self._of_source.values(), *self._of_move, *([self._letters] if self._letters else [])]
        #: the steps that wait for what waits at an inlet or an outlet, by the name of that
        self.takers = {name: each.takers for each in self.crossings for name in (each.inlet_name, each.outlet_name)}

    def taking_blocks(self) -> set[str]:
        """Return the steps that know the numbers of blocks in place of event time."""
        return {name for name, where in self._layout.where.items() if where == "blocks"}

    def outlets(self) -> set[str]:
        """Return the names of all outlets."""
        return {crossing.outlet_name for crossing in self.crossings}

    def distribution(self) -> Distribution:
        """Return how the flow is spread, for a checkpoint, and for a run that goes on from one."""
        from headwater.engine.checkpoint.distribution import Distribution

        layout, steps = self._layout, self._flow.steps
        moves = {reader: (move.to_where, move.keys) for move in layout.moves for reader in move.readers}
        outlets = {
            crossing.outlet_name: tuple(move.readers)
            for move, crossing in zip(layout.moves, self._of_move, strict=True)
        }
        by: dict[str, tuple[int, ...]] = {}
        sinks: dict[str, tuple[str, ...]] = {}
        for step in steps.values():
            if layout.where[step.name] != "key":
                continue
            names = [
                moves[step.name, port][1] if (step.name, port) in moves else layout.keys.get((edge.step, edge.port))
                for port, edge in enumerate(step.inputs)
            ]
            if step.is_sink and names[0] is not None and len(set(names)) == 1:
                sinks[step.name] = names[0]
            elif names[0] and set(names[0]) <= set(step.inputs[0].keys):
                by[step.name] = tuple(step.inputs[0].keys.index(name) for name in names[0])
        return Distribution(self.lanes, dict(layout.where), by, sinks, moves, outlets)

    def writers(self) -> list[str]:
        """Return the names of all writers of sinks, in every lane."""
        from headwater.engine.checkpoint.ledgers import writers_of

        sinks = [step for step in self._flow.steps.values() if step.is_sink]
        return [
            name
            for step in sinks
            for name in writers_of(step, 1 if self._layout.where[step.name] == "one" else self.lanes)
        ]

    def connect(self) -> None:
        """Make all paths; before the processes part."""
        for crossing in self.crossings:
            crossing.connect()
        for _, place in self._shares.values():
            place.open()

    def reset(self) -> None:
        """Forget what is on its way between lanes, once none is at work."""
        for crossing in self.crossings:
            crossing.reset()

    def close(self) -> None:
        """Give back what was opened, once no lane is at work."""
        for crossing in self.crossings:
            crossing.close()
        for _, place in self._shares.values():
            place.close()

    def part(self, lane: int) -> Flow:
        """Return what one lane runs."""
        steps: list[Step] = []
        for name, crossing in self._of_source.items():
            if lane == 0:
                source = self._flow.steps[name]
                steps += [source, _sending(crossing, lane, Input(name, next(iter(source.outputs)), crossing.schema))]
            steps.append(_receiving(crossing, lane))
        for move, crossing in zip(self._layout.moves, self._of_move, strict=True):
            if lane in crossing.senders:
                steps.append(_sending(crossing, lane, self._in_lanes(move.edge)))
            if lane in crossing.receivers:
                steps.append(_receiving(crossing, lane))
        if self._letters is not None and lane:
            here = replace(self._flow.steps[DEAD_LETTERS], inputs=())  # those of other sites come to lane 0
            steps += [here, _sending(self._letters, lane, Input(DEAD_LETTERS, "out", DEAD_LETTER_SCHEMA))]
        elif self._letters is not None:
            steps.append(_receiving(self._letters, lane))
        for step in self._flow.steps.values():
            where = self._layout.where[step.name]
            if (where != "one" or lane == 0) and step.name not in self._of_source:
                steps.append(self._step(step, where, lane))
        return Flow.of_steps(self._flow.name, steps)

    def _handed_of(self, move: Move) -> Activity | None:
        """Return who tells how far the source of a stream is handed out; None where nobody asks whether it is silent."""
        if move.time is None or move.time.idle_us is None:
            return None
        step = move.stream[0]
        while inputs := self._flow.steps[step].inputs:
            step = next(edge.step for edge in inputs if edge.grouping != "all")
        if step in self._shares:
            return self._shares[step][1].activity
        crossing = self._of_source[step]
        crossing.activity = crossing.activity or SourceActivity()
        crossing.activity.idle_s = min(crossing.activity.idle_s, move.time.idle_us / 1e6)
        return crossing.activity

    def _readers(self, source: Step) -> list[str]:
        readers = self._flow.readers_of(source.name)
        return [step.name for step in readers for edge in step.inputs if edge.step == source.name]

    def _step(self, step: Step, where: Where, lane: int) -> Step:
        inputs = tuple(
            self._moved(step, port) or self._in_lanes(edge)
            for port, edge in enumerate(step.inputs)
            # a sink that every lane has may take something that is made in lane 0 alone
            if lane == 0 or not step.is_sink or self._layout.where[edge.step] != "one"
        )
        kind: Kind = step.kind
        if isinstance(kind, Read) and step.name in self._shares:
            kind = replace(kind, source=Share(kind.source, *self._shares[step.name]))
        if isinstance(kind, EventTime) and where == "blocks":
            # time is told where the records leave the blocks; here they are only looked at
            kind = Apply(partial(EventTimeOperator, kind, step.name))
        if step.name == DEAD_LETTERS and self._letters is not None:
            inputs = (*inputs, Input(self._letters.inlet_name, "out", DEAD_LETTER_SCHEMA))
        outputs = {port: self._layout.schemas.get((step.name, port), schema) for port, schema in step.outputs.items()}
        parallel = step.parallel if where == "one" else 1
        return replace(step, kind=kind, inputs=inputs, outputs=outputs, parallel=parallel)

    def _moved(self, step: Step, port: int) -> Input | None:
        for move, crossing in zip(self._layout.moves, self._of_move, strict=True):
            if (step.name, port) in move.readers:
                edge = step.inputs[port]
                return Input(crossing.inlet_name, "out", crossing.schema, edge.grouping, edge.keys)
        return None

    def _in_lanes(self, edge: Input) -> Input:
        """Return an input as it is in lanes, or from the blocks of its source."""
        crossing = self._of_source.get(edge.step)
        if crossing is None:
            return replace(edge, schema=self._layout.schema(edge))
        return Input(crossing.inlet_name, "out", edge.schema, edge.grouping, edge.keys)


def _main(step: Step) -> Schema:
    return next(iter(step.outputs.values()))


def _receiving(crossing: Crossing, lane: int) -> Step:
    return Step(crossing.inlet_name, Read(crossing.inlet(lane)), (), {"out": crossing.schema})


def _sending(crossing: Crossing, lane: int, edge: Input) -> Step:
    plain = Input(edge.step, edge.port, edge.schema)
    return Step(crossing.outlet_name, Write(crossing.outlet(lane)), (plain,), {})
