"""Where the steps of a flow run when it runs in lanes, and where records have to move between lanes for it.

Batches of a source are its blocks, and any lane may have any of them. Steps that look at each record alone run where the
blocks are. Where records have to meet by key, or in one place, they move: those of blocks are put back in the order in
which they were read, so that it makes no difference who had them; those of keyed steps keep the order of each key. Steps
behind a keyed one stay with its keys as long as they can.

A source that tells event time, such as the end of a bridge, is read in lane 0, and what it tells goes with the records
to the lanes of their keys: blocks would leave it behind. A site's part of a flow is spread by whole keys alone, and with
all columns, so that each lane has what an instance of the step would have: that can go on elsewhere, shared out otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headwater.data.schema import Schema
from headwater.engine.lanes.columns import pruned
from headwater.flow.endpoints import apart, in_order, tells_time
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.partitioning import Partitioning, names_in_output, partitioning_of
from headwater.flow.splits import knowing_time
from headwater.flow.steps import Apply, EventTime, Input, OutputName, Read, Step, Write
from headwater.operators import Operator

#: Where a step runs: in every lane on the blocks that the lane has, in every lane on its keys, or in lane 0 alone.
Where = Literal["blocks", "key", "one"]
To = Literal[
    "key", "one", "all"
]  #: Where records move to: to the lane of their key, to lane 0, or each of them to every lane


@dataclass(slots=True)
class Move:
    """A stream that moves between lanes, on its way to inputs that want it the same way."""

    number: int
    stream: OutputName
    edge: Input
    from_where: Where
    to_where: To
    keys: tuple[str, ...]
    #: the event time step that it comes from, if somebody wants to know how far event time has come
    time: EventTime | None = None
    readers: list[tuple[str, int]] = field(default_factory=list)
    columns: tuple[str, ...] = ()  #: those of its columns that anybody there uses


@dataclass(slots=True)
class Layout:
    """Where each step of a flow runs, and what moves."""

    flow: Flow
    where: dict[str, Where]
    moves: list[Move]
    #: steps that run in lane 0 although they could be anywhere, since they take or give what is only there
    why_one: dict[str, str]
    #: the columns that streams have where not all of them moved along
    schemas: dict[OutputName, Schema] = field(default_factory=dict)
    keys: dict[OutputName, tuple[str, ...]] = field(default_factory=dict)  #: by which columns streams are spread

    def schema(self, edge: Input) -> Schema:
        """Return the columns that an input has in lanes."""
        return self.schemas.get((edge.step, edge.port), edge.schema)

    def spreads(self) -> bool:
        """Say whether anything but sources and sinks runs in every lane."""
        return any(
            where != "one" and not isinstance(self.flow.steps[name].kind, Read) for name, where in self.where.items()
        )


def laid_out(flow: Flow) -> Layout:
    """Check a flow and decide where its steps run."""
    flow.check()
    return _Planner(knowing_time(flow)).layout()


class _Planner:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.parts: dict[str, Partitioning] = {name: partitioning_of(step) for name, step in flow.steps.items()}
        self.letters = flow.reached_from(DEAD_LETTERS) if DEAD_LETTERS in flow.steps else set()
        self.where: dict[str, Where] = {}
        self.keys: dict[
            OutputName, tuple[str, ...]
        ] = {}  #: the key columns by which a stream is spread, under its own names
        self.moves: list[Move] = []
        self.why: dict[str, str] = {}

    def layout(self) -> Layout:
        for step in self.flow.in_order():
            self._place(step)
        for step in self.flow.steps.values():
            if step.is_source and all(self.where[r.name] == "one" for r in self.flow.readers_of(step.name)):
                self.where[step.name] = "one"
                self.moves = [move for move in self.moves if move.stream[0] != step.name]
        schemas = {} if self.flow.is_part else pruned(self.flow, self.moves)
        if self.flow.is_part:  # elsewhere somebody may read what nobody does here
            for move in self.moves:
                move.columns = tuple(move.edge.schema)
        return Layout(self.flow, self.where, self.moves, self.why, schemas, self.keys)

    def _place(self, step: Step) -> None:
        place = self.parts[step.name].role
        if isinstance(step.kind, Read):
            self.where[step.name] = "one" if tells_time(step.kind.source) else "blocks"
            self._pass_on(step, None)
        elif step.name in self.letters:
            self._in_one(step, "dead letters of all lanes come together")
        elif place == "sink":
            self._place_sink(step)
        elif place == "copied" and not self.parts[step.name].timed:
            self._place_copied(step)
        elif any(edge.grouping == "all" for edge in step.inputs):
            self._in_one(step, "an input of it goes to all instances")
        elif place == "free":
            self._place_free(step)
        elif place == "time" and self.where[step.inputs[0].step] == "blocks":
            self._stay(step, "blocks")
        elif place == "keyed" and self._have_hashes(step):
            if self.flow.is_part and not _can_forget(step):
                self._in_one(
                    step, "it keeps state by key that cannot be shared out otherwise, for want of a method forget"
                )
            else:
                self._place_keyed(step)
        else:
            self._in_one(step, "event time after a keyed step" if place == "time" else "keeps state without a key")

    def _place_sink(self, step: Step) -> None:
        assert isinstance(step.kind, Write)
        wheres = {self.where[edge.step] for edge in step.inputs}
        sink = step.kind.sink
        is_ordered = not in_order(sink) or wheres == {"key"}  # records of a key are in one lane
        if apart(sink) and is_ordered and wheres != {"one"}:  # in lane 0 it also takes what is only there
            self.where[step.name] = "key" if "key" in wheres else "blocks"
            return
        self._in_one(step, "its sink takes one writer, is in this process, or shows the order of its records")

    def _place_free(self, step: Step) -> None:
        wheres = {self.where[edge.step] for edge in step.inputs}
        if wheres == {"one"}:
            self._in_one(step, "its records are in lane 0 already")
        elif wheres == {"key"} or (wheres == {"blocks"} and len(step.inputs) == 1 and not self._leaves_time(step)):
            self._stay(step, wheres.pop())
        else:  # several streams of blocks have no one order; and event time goes no further with blocks
            keys = self._keys_ahead(step)
            if keys is None:
                self._in_one(step, "several streams come together, or event time is needed, and no key tells where")
            else:
                self._move_all(step, [keys] * len(step.inputs))

    def _place_copied(self, step: Step) -> None:
        """Let every lane have a copy, where the records are; each learns the same from the inputs that go to all."""
        to_all = [(port, edge) for port, edge in enumerate(step.inputs) if edge.grouping == "all"]
        if not to_all:
            self._place_free(step)
            return
        others = [edge for edge in step.inputs if edge.grouping != "all"]
        wheres = {self.where[edge.step] for edge in others}
        if len(others) != 1 or wheres == {"one"} or self._leaves_time(step):
            self._in_one(step, "an input of it goes to all instances, and its records are in lane 0")
            return
        self._stay(step, wheres.pop())
        for port, edge in to_all:
            self._move(step, port, edge, "all", ())

    def _place_keyed(self, step: Step) -> None:
        if len(step.inputs) == 1:
            self._place_keyed_alone(step, step.inputs[0])
            return
        spreads = [self.keys.get((edge.step, edge.port)) for edge in step.inputs]
        at = [
            tuple(edge.keys.index(name) for name in names)
            if names and set(names) <= set(edge.keys) and self.where[edge.step] == "key"
            else None
            for edge, names in zip(step.inputs, spreads, strict=True)
        ]
        whole = not self.flow.is_part or at[0] == tuple(range(len(step.inputs[0].keys)))
        if None not in at and len(set(at)) == 1 and whole:
            self._stay(step, "key")
        else:
            self._move_all(step, [edge.keys for edge in step.inputs])

    def _place_keyed_alone(self, step: Step, edge: Input) -> None:
        names = self.keys.get((edge.step, edge.port))
        if self.where[edge.step] == "key" and names and self._tells_where(names, edge):
            self._stay(step, "key")
        else:
            self._move_all(step, [self._part_of_key(step, edge)])

    def _part_of_key(self, step: Step, edge: Input) -> tuple[str, ...]:
        """Return the part of a key by which records can stay where they are behind the step too; all of it if none does."""
        if self.flow.is_part or self._passes(step, edge.keys):
            return edge.keys
        for name in sorted(self.flow.reached_from(step.name) - {step.name}):
            for later in self.flow.steps[name].inputs:
                part = tuple(key for key in edge.keys if key in later.keys or key in later.of)
                if part and self._passes(step, part):
                    return part
        return edge.keys

    def _have_hashes(self, step: Step) -> bool:
        return all(edge.schema[key] != "any" for edge in step.inputs for key in edge.keys)

    def _leaves_time(self, step: Step) -> bool:
        """Say whether a step would take records away from where they have their event time, although it is needed."""
        is_timed = any(isinstance(self.flow.steps[edge.step].kind, EventTime) for edge in step.inputs)
        return is_timed and self._time_is_needed(step)

    def _time_is_needed(self, step: Step) -> bool:
        return any(self.parts[name].timed for name in self.flow.reached_from(step.name))

    def _keys_ahead(self, step: Step) -> tuple[str, ...] | None:
        """Return the key that all who keep state behind a step agree on, if its columns pass unchanged; else None."""
        candidates = [
            edge.keys
            for name in sorted(self.flow.reached_from(step.name))
            for edge in self.flow.steps[name].inputs
            if self.parts[name].role == "keyed" and edge.keys
        ]
        for keys in candidates:
            fits = all(key in edge.schema and edge.schema[key] != "any" for edge in step.inputs for key in keys)
            if fits and self._passes(step, keys):
                return keys
        return None

    def _passes(self, step: Step, names: tuple[str, ...]) -> bool:
        """Say whether records spread by these columns are where every step that keeps state behind this one needs them."""
        for port in step.outputs:
            there = names_in_output(step, port, names)
            for reader in self.flow.readers_of(step.name, port):
                place = self.parts[reader.name].role
                if place == "sink":
                    continue
                if there is None:
                    return False
                if place == "keyed":
                    if any(edge.step == step.name and not self._tells_where(there, edge) for edge in reader.inputs):
                        return False
                elif place != "free" or not self._passes(reader, there):
                    return False
        return True

    def _tells_where(self, names: tuple[str, ...], edge: Input) -> bool:
        """Say whether records spread by these columns have those of each key of an input in one place."""
        return names == edge.keys if self.flow.is_part else set(names) <= {*edge.keys, *edge.of}

    # -- what a decision means ----------------------------------------------------------------------------------------

    def _stay(self, step: Step, where: Where) -> None:
        self.where[step.name] = where
        spreads = {self.keys.get((edge.step, edge.port)) for edge in step.inputs}
        names = spreads.pop() if len(spreads) == 1 else None
        if self.parts[step.name].role == "keyed":  # by the same columns under other names, perhaps
            names = self.keys.get((step.inputs[0].step, step.inputs[0].port))
        self._pass_on(step, names)

    def _in_one(self, step: Step, why: str) -> None:
        self.where[step.name], self.why[step.name] = "one", why
        for port, edge in enumerate(step.inputs):
            if self.where[edge.step] != "one":
                self._move(step, port, edge, "one", ())

    def _move_all(self, step: Step, keys: list[tuple[str, ...]]) -> None:
        self.where[step.name] = "key"
        for port, (edge, by) in enumerate(zip(step.inputs, keys, strict=True)):
            self._move(step, port, edge, "key", by)
        self._pass_on(step, keys[0])

    def _move(self, step: Step, port: int, edge: Input, to: To, keys: tuple[str, ...]) -> None:
        stream = edge.step, edge.port
        for move in self.moves:
            if (move.stream, move.to_where, move.keys) == (stream, to, keys):
                move.readers.append((step.name, port))
                return
        origin = self.where[edge.step]
        kind = self.flow.steps[edge.step].kind
        time = kind if isinstance(kind, EventTime) and origin == "blocks" else None
        move = Move(len(self.moves), stream, edge, origin, to, keys, time, [(step.name, port)])
        self.moves.append(move)

    def _pass_on(self, step: Step, names: tuple[str, ...] | None) -> None:
        """Take note of what the key columns are called in the outputs of a step."""
        for port in step.outputs:
            columns = None if names is None else names_in_output(step, port, names)
            if columns is not None:
                self.keys[step.name, port] = columns


def _can_forget(step: Step) -> bool:
    """Say whether a step by key can leave to others the keys that are theirs; operators of somebody's own may not."""
    return not isinstance(step.kind, Apply) or step.kind.operator.forget is not Operator.forget
