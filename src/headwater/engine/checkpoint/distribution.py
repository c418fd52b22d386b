"""How a run spreads the steps of a flow, as a checkpoint tells it: over instances by number, or over lanes by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.flow.flow import Flow
from headwater.flow.steps import Step
from headwater.operators.operator import Select

Reader = tuple[str, int]  #: a step and one of its inputs


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where each step runs, and by what its records come there; without lanes, all in one process.

    >>> Distribution().is_in_one("sum"), Distribution(2, {"sum": "key"}).is_in_one("sum")
    (True, False)
    """

    lanes: int = 1
    where: Mapping[str, str] = field(default_factory=dict)  #: "blocks", "key" or "one", as `engine.lanes.layout` says
    #: of steps by key that every lane has: which of the key columns tell the lane of a key; not of those where none do
    by: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: the columns by which a sink that every lane has gets its records there
    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moves: Mapping[Reader, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  #: to where, and by which columns
    outlets: Mapping[str, tuple[Reader, ...]] = field(default_factory=dict)  #: who reads what waits at an outlet

    def is_in_one(self, name: str) -> bool:
        """Say whether all instances of a step are in one process, told apart by their numbers."""
        return self.lanes == 1 or self.where.get(name, "one") == "one"

    def takes_blocks(self, name: str) -> bool:
        """Say whether a step takes whatever blocks of a source its lane has, and knows their numbers in place of time."""
        return self.lanes > 1 and self.where.get(name) == "blocks"

    def tells_lane(self, step: Step) -> bool:
        """Say whether it can be told where the state of a key belongs."""
        return self.is_in_one(step.name) or self.takes_blocks(step.name) or step.name in self.by

    def shares(self, step: Step, instances: int) -> tuple[object, ...]:
        """Return how the state of a step is shared out; where that is equal, each has what the other had."""
        if self.is_in_one(step.name):
            return "number", instances
        return self.where[step.name], self.lanes, self.by.get(step.name, "by what its key does not tell")

    def share(self, step: Step, number: int, instances: int, lane: int) -> Select | None:
        """Return what chooses the keys of an instance of a step; None where it has all."""
        if self.is_in_one(step.name):
            return Select(number, instances) if instances > 1 else None
        return Select(lane, self.lanes, self.by.get(step.name))

    def share_text(self, name: str, instances: int) -> str:
        """Return how many share a step, in words."""
        if not self.is_in_one(name):
            return f"{self.lanes} lanes"
        return f"{instances} {'instance' if instances == 1 else 'instances'}"

    def to_plain(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it, for `of`."""
        return {
            "where": dict(self.where),
            "by": {name: list(places) for name, places in self.by.items()},
            "moves": [[*reader, to, list(keys)] for reader, (to, keys) in self.moves.items()],
            "outlets": {name: [list(reader) for reader in readers] for name, readers in self.outlets.items()},
        }

    @classmethod
    def of(cls, content: Mapping[str, Any], flow: Flow) -> Distribution:
        """Return how the run that made a checkpoint was spread; one of lanes that does not say, as the flow would be now."""
        lanes = content.get("lanes", 1)
        if lanes == 1:
            return cls()
        layout = content.get("layout")
        if layout is None:
            from headwater.engine.lanes.layout import laid_out
            from headwater.engine.lanes.wiring import Wiring

            return Wiring(laid_out(flow), lanes, share=False).distribution()
        return cls(
            lanes,
            layout["where"],
            {name: tuple(places) for name, places in layout["by"].items()},
            moves={(step, port): (to, tuple(keys)) for step, port, to, keys in layout["moves"]},
            outlets={
                name: tuple((step, port) for step, port in readers) for name, readers in layout["outlets"].items()
            },
        )
