"""A flow: the steps a user wrote and how they are joined. Building one runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.data.schema import Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.contract import Above, Contract
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Source
from headwater.flow.places import check_places
from headwater.flow.steps import DeadLetters, Input, Kind, Read, Step
from headwater.flow.trouble import DEAD_LETTER, OnError, Then, check_on_error

if TYPE_CHECKING:
    from headwater.flow.stream import Stream

DEAD_LETTERS = "dead letters"
DEAD_LETTER_SCHEMA = Schema.of({"step": str, "error": str, "record": str})

_PACKAGE = str(Path(__file__).resolve().parent.parent)


class Flow:
    """A dataflow under construction: named steps, each reading streams of earlier ones.

    >>> from headwater.io import Items
    >>> flow = Flow("tanks")
    >>> levels = flow.read("levels", Items([{"tank": "a", "height": 120.0}]))
    >>> levels.schema
    Schema(fields=(('tank', 'text'), ('height', 'float')))
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise FlowError(f"a flow needs a name; got {name!r}")
        self.name = name
        self.promised: Contract | None = None  #: the rate and latency that it asks for, see `contract`
        #: whether it is what one site runs of a flow: its steps may go on elsewhere, in another number of lanes
        self.is_part = False
        self._steps: dict[str, Step] = {}

    @classmethod
    def of_steps(cls, name: str, steps: Iterable[Step]) -> Flow:
        """Make a flow of steps that were described elsewhere; `check` finds what does not fit."""
        flow = cls(name)
        for step in steps:
            flow._insert(step)
        return flow

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps by name, in the order they were written."""
        return self._steps

    def read(self, name: str, source: Source, *, on_error: Then = DEAD_LETTER) -> Stream:
        """Bring records in from a source; `on_error` says what becomes of what cannot be read: "stop" ends the run."""
        from headwater.flow.stream import Stream

        refuse_others(name, source, "source")
        self.add(name, Read(source), outputs={"out": source.schema}, on_error=on_error)
        return Stream(self, name)

    def contract(
        self,
        rate: str | float,
        latency: Duration | None = None,
        *,
        burst: float | None = None,
        above: Above = "best effort",
    ) -> Flow:
        """Ask for a promise: so many records per second, none older than `latency` at a sink, whatever else runs there.

        `burst` records may come at once on top of the rate (what comes in 0.1 s, unless said). What comes `above` both is
        served as far as there is room, or "shed", or has to wait ("block"). `headwater run` grants or refuses it.
        """
        self.promised = Contract.of(rate, latency, burst=burst, above=above)
        return self

    @property
    def dead_letters(self) -> Stream:
        """The records that broke a step: the step, the error and the record as JSON text."""
        from headwater.flow.stream import Stream

        if DEAD_LETTERS not in self._steps:
            self.add(DEAD_LETTERS, DeadLetters(), outputs={"out": DEAD_LETTER_SCHEMA})
        return Stream(self, DEAD_LETTERS)

    def add(
        self,
        name: str,
        kind: Kind,
        *,
        inputs: tuple[Input, ...] = (),
        outputs: Mapping[str, Schema] | None = None,
        parallel: int = 1,
        on_error: OnError = DEAD_LETTER,
    ) -> Step:
        """Add a step of any kind; the methods of `Stream` are the usual way to do it."""
        step = Step(name, kind, inputs, dict(outputs or {}), parallel, _users_line(), on_error)
        self._insert(step)
        return step

    def _insert(self, step: Step) -> None:
        if not isinstance(step.name, str) or not step.name:
            raise FlowError(f"{step.where}: a step needs a name; got {step.name!r}")
        if step.name in self._steps:
            earlier = self._steps[step.name].where
            raise FlowError(
                f"{step.where}: flow {self.name!r} already has a step {step.name!r} (from {earlier}); names must be unique"
            )
        if not isinstance(step.parallel, int) or step.parallel < 1:
            raise FlowError(f"{step.where}: step {step.name!r}: parallel must be 1 or more; got {step.parallel!r}")
        try:
            check_on_error(step.on_error, retries=not step.is_source)
        except FlowError as error:
            raise FlowError(f"{step.where}: step {step.name!r}: {error}") from None
        self._steps[step.name] = step

    def readers_of(self, name: str, port: str | None = None) -> list[Step]:
        """Return the steps that read a step's output."""
        return [
            step
            for step in self._steps.values()
            if any(edge.step == name and port in (None, edge.port) for edge in step.inputs)
        ]

    def reached_from(self, name: str) -> set[str]:
        """Return the steps that records of a step may come to, itself included."""
        names = {name}
        for step in self.in_order():
            if any(edge.step in names for edge in step.inputs):
                names.add(step.name)
        return names

    def in_order(self) -> list[Step]:
        """Return the steps so that each comes after those it reads; a cycle is an error."""
        waiting = dict(self._steps)
        order: list[Step] = []
        placed: set[str] = set()
        while waiting:
            ready = [s for s in waiting.values() if all(edge.step in placed for edge in s.inputs)]
            if not ready:
                self._complain_of_cycle(waiting)
            for step in ready:
                order.append(step)
                placed.add(step.name)
                del waiting[step.name]
        return order

    def _complain_of_cycle(self, waiting: Mapping[str, Step]) -> None:
        for step in waiting.values():
            for edge in step.inputs:
                if edge.step not in self._steps:
                    raise FlowError(
                        f"{step.where}: step {step.name!r} reads {edge.step!r}, which flow {self.name!r} does not have; "
                        f"steps so far: {listed(self._steps)}"
                    )
        raise FlowError(f"flow {self.name!r} has a cycle through steps {listed(waiting)}; a flow must run one way")

    def check(self) -> None:
        """Raise FlowError for a cycle, a step that no source reaches, an output that goes nowhere, a place used twice."""
        order = self.in_order()
        reachable: set[str] = set()
        for step in order:
            if (
                step.is_source
                or isinstance(step.kind, DeadLetters)
                or any(edge.step in reachable for edge in step.inputs)
            ):
                reachable.add(step.name)
            else:
                raise FlowError(f"{step.where}: no source reaches step {step.name!r}; does it read a stream?")
        if not any(step.is_source for step in order):
            raise FlowError(f"flow {self.name!r} reads nothing; start it with flow.read(name, source)")
        for step in order:
            if not step.is_sink and not self.readers_of(step.name, next(iter(step.outputs))):
                raise FlowError(
                    f"{step.where}: the output of step {step.name!r} goes nowhere; end it with .write(name, sink)"
                )
        check_places(self._steps.values())

    def check_source(self, name: str) -> None:
        """Raise FlowError unless a source has this name."""
        sources = [step.name for step in self._steps.values() if step.is_source]
        if name not in sources:
            raise FlowError(
                f"flow {self.name!r} has no source {name!r}; its sources are {listed(sources)}{suggestion(name, sources)}"
            )

    def replaced(self, kinds: Mapping[str, Kind]) -> Flow:
        """Return the same flow with some steps doing something else, such as reading another source."""
        steps = (replace(step, kind=kinds.get(step.name, step.kind)) for step in self._steps.values())
        flow = Flow.of_steps(self.name, steps)
        flow.promised, flow.is_part = self.promised, self.is_part
        return flow

    def to_json(self) -> dict[str, Any]:
        """Describe the flow as plain data: steps, what they do in words, their streams and schemas."""
        return {
            "flow": self.name,
            **({} if self.promised is None else {"contract": asdict(self.promised)}),
            "steps": [
                {
                    "name": step.name,
                    "kind": type(step.kind).__name__,
                    "does": str(step.kind),
                    "parallel": step.instances,
                    "on_error": str(step.on_error),
                    "inputs": [
                        {"step": i.step, "port": i.port, "grouping": i.grouping, "keys": list(i.keys)}
                        for i in step.inputs
                    ],
                    "outputs": {port: dict(schema.fields) for port, schema in step.outputs.items()},
                }
                for step in self._steps.values()
            ],
        }

    def query(self, name: str, text: Any, **options: Any) -> Stream:
        """Add a query in the language of Siddhi, such as "from levels[height < 150] select tank"; see `headwater.cep`."""
        from headwater.cep import add_query

        return add_query(self, name, text, **options)

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self._steps)} steps)"


def refuse_others(name: str, endpoint: object, what: Literal["source", "sink"]) -> None:
    """Raise FlowError where something else was given for a source or a sink, such as a path or the records themselves."""
    if isinstance(endpoint, str | PathLike):
        path = str(endpoint)
        raise FlowError(f"{_users_line()}: step {name!r} takes a {what}, such as io.JsonLines({path!r}); got {path!r}")
    if not callable(getattr(endpoint, "open", None)):
        usual = "io.Items(records)" if what == "source" else "io.Collect()"
        raise FlowError(
            f"{_users_line()}: step {name!r} takes a {what}, such as {usual}; got {type(endpoint).__name__}"
        )


def _users_line() -> str:
    """Return file:line of the nearest caller outside this package, where the user can mend things."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
