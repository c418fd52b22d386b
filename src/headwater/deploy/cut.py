"""The cut: a flow as parts, one for each site that runs some of it, with the streams that cross from site to site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.data.schema import Schema
from headwater.deploy.routes import Stream
from headwater.errors import NetError, PlacementError, listed, suggestion
from headwater.flow.endpoints import Sink, Source
from headwater.flow.flow import DEAD_LETTER_SCHEMA, DEAD_LETTERS, Flow
from headwater.flow.splits import knowing_time
from headwater.flow.steps import Input, Read, Step, Write
from headwater.net.net import Net
from headwater.place.plan import Plan


@dataclass(frozen=True, slots=True)
class Crossing:
    """A stream that steps of another site read: it crosses once for each such site, however many of them there read it."""

    flow: str
    step: str
    port: str
    schema: Schema
    origin: str  #: the site that makes the records
    target: str  #: the site that takes them

    @property
    def stream(self) -> str:
        """What the records are called in messages, and in the names of the steps at both ends."""
        return self.step if self.port == "out" else f"{self.step}.{self.port}"

    @property
    def outlet(self) -> str:
        """The name of the step that sends, to however many sites: that stays the same wherever those are."""
        return outlet_of(self.stream)

    @property
    def inlet(self) -> str:
        """The name of the step that receives, wherever from; dead letters come from several sites at once."""
        return f"{self.stream} (from {self.origin})" if self.step == DEAD_LETTERS else f"{self.stream} (received)"

    def __str__(self) -> str:
        return f"{self.flow}: {self.stream}, {self.origin} → {self.target}"


def outlet_of(stream: str) -> str:
    """Return the name of the step that sends a stream."""
    return f"{stream} (sent)"


class Ends(Protocol):
    """Makes both ends of crossings: over a network, or within a process."""

    def outlet(self, crossings: Sequence[Crossing]) -> Sink:
        """Return the sink that sends the records of a stream, and event time with them, to all sites that it crosses to."""

    def inlet(self, crossing: Crossing) -> Source:
        """Return the source that brings them in."""


class Cut:
    """A flow and the site of each of its steps; `part` is the flow that one of the sites runs.

    What the parts do together is what the flow does on one engine: event time, records that came late and dead letters
    cross, and the records of each stream stay in order. A step without a site is an error, but for the flow's dead letters:
    they are gathered where they are read, unless something else is said.
    """

    def __init__(self, flow: Flow, sites: Mapping[str, str]) -> None:
        flow.check()
        self.flow = knowing_time(flow)
        self.site_of = _placed(flow, sites)
        self.sites = tuple(dict.fromkeys(self.site_of.values()))  #: those that run a part
        self.crossings = (*self._streams(), *self._letters())
        self._check_letters()

    @classmethod
    def of(cls, plan: Plan, flow: Flow, net: Net) -> Cut:
        """Cut a flow as a plan says; devices of one site run one part together."""
        if plan.copies:
            shared = next(iter(plan.copies))
            raise PlacementError(
                f"the plan shares step '{shared}' out as {plan.copies[shared]} copies, which cannot be deployed yet; "
                "plan without copies, or give the step that many instances (parallel=…) at one site"
            )
        return cls(flow, {step: _site(net, step, at) for step, at in plan.placement.items()})

    @property
    def streams(self) -> list[Stream]:
        """What crosses between sites."""
        return sorted((crossing.stream, crossing.origin, crossing.target) for crossing in self.crossings)

    @property
    def joined(self) -> list[tuple[str, str]]:
        """The pairs of sites between which something crosses."""
        return sorted({(crossing.origin, crossing.target) for crossing in self.crossings})

    def part(self, site: str, ends: Ends) -> Flow:
        """Return the flow that a site runs."""
        if site not in self.sites:
            slip = suggestion(site, self.sites) or f"; it runs at {listed(self.sites)}"
            raise PlacementError(f"no step of flow '{self.flow.name}' is placed at site '{site}'{slip}")
        steps = [_receiving(crossing, ends) for crossing in self.crossings if crossing.target == site]
        if DEAD_LETTERS in self.flow.steps and self.site_of[DEAD_LETTERS] != site:
            steps.append(self.flow.steps[DEAD_LETTERS])
        steps += [
            replace(step, inputs=self._inputs(step, site))
            for step in self.flow.steps.values()
            if self.site_of[step.name] == site
        ]
        steps += [_sending(crossings, ends) for crossings in self._leaving(site)]
        part = Flow.of_steps(self.flow.name, steps)
        part.is_part = True
        return part

    def _leaving(self, site: str) -> list[list[Crossing]]:
        """Return the crossings of each stream that leaves a site."""
        by_stream: dict[str, list[Crossing]] = {}
        for crossing in self.crossings:
            if crossing.origin == site:
                by_stream.setdefault(crossing.stream, []).append(crossing)
        return list(by_stream.values())

    def _inputs(self, step: Step, site: str) -> tuple[Input, ...]:
        if step.name == DEAD_LETTERS:
            return tuple(
                Input(crossing.inlet, "out", DEAD_LETTER_SCHEMA)
                for crossing in self.crossings
                if crossing.step == DEAD_LETTERS
            )
        return tuple(self._crossed(each, site) for each in step.inputs)

    def _crossed(self, step_input: Input, site: str) -> Input:
        """Return an input as it is, or from where the stream comes in."""
        origin = self.site_of[step_input.step]
        if origin == site:
            return step_input
        crossing = Crossing(self.flow.name, step_input.step, step_input.port, step_input.schema, origin, site)
        return replace(step_input, step=crossing.inlet, port="out")

    def _streams(self) -> list[Crossing]:
        crossings: dict[Crossing, None] = {}
        for step in self.flow.steps.values():
            for each in step.inputs:
                origin, target = self.site_of[each.step], self.site_of[step.name]
                if origin != target:
                    crossings[Crossing(self.flow.name, each.step, each.port, each.schema, origin, target)] = None
        return list(crossings)

    def _letters(self) -> list[Crossing]:
        """Dead letters of every site go to where the flow reads them."""
        if DEAD_LETTERS not in self.flow.steps:
            return []
        target = self.site_of[DEAD_LETTERS]
        return [
            Crossing(self.flow.name, DEAD_LETTERS, "out", DEAD_LETTER_SCHEMA, origin, target)
            for origin in self.sites
            if origin != target
        ]

    def _check_letters(self) -> None:
        """Refuse what would send a dead letter round and round: what breaks one of its readers is no dead letter."""
        if DEAD_LETTERS in self.flow.steps:
            apart = {self.site_of[name] for name in self.flow.reached_from(DEAD_LETTERS)}
            if len(apart) > 1:
                raise PlacementError(
                    f"the dead letters of flow '{self.flow.name}' are read at sites {listed(apart)}; "
                    "put all steps behind them at one site"
                )


def _placed(flow: Flow, sites: Mapping[str, str]) -> dict[str, str]:
    placed: dict[str, str] = {}
    for name in sites:
        if name not in flow.steps:
            slip = suggestion(name, flow.steps) or f"; its steps are {listed(flow.steps)}"
            raise PlacementError(f"step '{name}' is placed, which flow '{flow.name}' does not have{slip}")
    for name in flow.steps:
        at = sites.get(name)
        if at is None and name == DEAD_LETTERS:
            at = next((sites[reader.name] for reader in flow.readers_of(name) if reader.name in sites), None)
        if at is None:
            raise PlacementError(f"nobody said at which site step '{name}' of flow '{flow.name}' runs")
        placed[name] = at
    return placed


def _site(net: Net, step: str, at: str) -> str:
    """Return the site that a plan names for a step, or that has the device that it names."""
    if at in net.zones:
        return at
    try:
        return net.zones[int(net.zone_of(net.device(at)))]
    except NetError as slip:
        raise PlacementError(f"the plan puts step '{step}' on '{at}': {slip}") from None


def _receiving(crossing: Crossing, ends: Ends) -> Step:
    return Step(crossing.inlet, Read(ends.inlet(crossing)), (), {"out": crossing.schema}, where=str(crossing))


def _sending(crossings: list[Crossing], ends: Ends) -> Step:
    first = crossings[0]
    step_input = Input(first.step, first.port, first.schema)
    return Step(first.outlet, Write(ends.outlet(crossings)), (step_input,), {}, where="; ".join(map(str, crossings)))
