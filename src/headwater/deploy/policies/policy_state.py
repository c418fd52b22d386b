"""What a policy plans with, and what it has decided so far: kept with the deployment, through a coordinator's kill -9."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from headwater.flow.contract import Contract
from headwater.flow.profile import Profile

_RATE_STEP = 1.25  #: by which the rate of a source must differ to be another one
_KEPT = 50  #: decisions that are remembered; the journal in the state folder has all
BROKE, ABOUT_TO = "broke its promise", "is about to break its promise"
REFUSED = "did not take what was to move there"
"""What a site is left alone for."""


class PlanningInput(msgspec.Struct, kw_only=True):
    """A flow's costs and the net that it was deployed on."""

    net: str  #: as JSON
    profile: Profile
    rates_hz: float | dict[str, float]
    measured_ips: float  #: the speed of the profile's machine
    pins: dict[str, str] = {}  #: step → device or site, besides where sources and sinks are
    keep: dict[str, str] = {}
    anonymise: list[str] = []
    every: str | None = None  #: how often parts make checkpoints, for which records wait at bridges
    whole: bool = False  #: whether all steps but sources and sinks stay together


class Decision(msgspec.Struct, kw_only=True):
    """One decision: why, what was moved, what was expected of it, and what came."""

    at_s: float
    why: str
    forced: bool  #: the flow could not stay as it was; else it was for gain
    moves: dict[str, tuple[str, str]]  #: step → (from, to)
    expects: dict[str, tuple[float | None, float | None]]  #: measure → (as it was, as it should be)
    id: str = ""  #: of the move
    came: dict[str, Any] | None = None  #: once it is over
    measured: dict[str, tuple[float | None, float | None]] = {}  #: as parts told: before, and some seconds after it


class Bar(msgspec.Struct):
    """A site that could not keep a promise, or hardly, or refused a part: not to be chosen for a while, longer each time."""

    until_s: float
    times: int
    why: str = BROKE


class PolicyState(msgspec.Struct, kw_only=True):
    """A policy at work."""

    name: str
    asked: PlanningInput
    contract: Contract | None = None  #: where there is one, the profile has a demand
    best_effort: bool = False  #: the promise holds as far as it can where a machine can reserve nothing
    settle_s: float = 5.0  #: for so long a reason must have held
    rest_s: float = 60.0  #: between two moves for gain
    gain: float = 0.05  #: the share of what it costs that a move must save
    rates_hz: dict[str, float] = {}  #: of sources, as measured; those that are not here bring what was said
    drained: list[str] = []
    held: dict[str, str] = {}  #: step → the site to which somebody moved it by hand: it stays there until it is let go
    held_before: dict[str, str] = {}  #: the same before the last move by hand, which may come to nothing
    barred: dict[str, Bar] = {}
    decisions: list[Decision] = []
    moved_s: list[float] = []  #: when moves were over, of late; of the last one, until then, when it was begun

    def note(self, decision: Decision) -> None:
        """Take note of a decision that is carried out."""
        self.decisions = [*self.decisions[1 - _KEPT :], decision]
        self.moved_s = [*self.moved_s[1 - _KEPT :], decision.at_s]

    def rated(self, source: str) -> float:
        """Return what a source is taken to bring."""
        nominal_hz = self.asked.rates_hz
        return self.rates_hz.get(source, nominal_hz.get(source, 0.0) if isinstance(nominal_hz, dict) else nominal_hz)

    def rate(self, measured_hz: Mapping[str, float]) -> None:
        """Take note of what sources bring; less than a quarter more or less is as before, as is nothing at all."""
        for source, hz in measured_hz.items():
            if hz > 0 and not 1 / _RATE_STEP < hz / max(self.rated(source), 1e-9) < _RATE_STEP:
                self.rates_hz = {**self.rates_hz, source: float(f"{hz:.2g}")}

    def hold(self, steps: Mapping[str, str], now_s: float) -> None:
        """Have steps stay where somebody moves them, and rest after it as after a move of its own."""
        self.held, self.held_before = {**self.held, **steps}, self.held
        self.moved_s = [*self.moved_s[1 - _KEPT :], now_s]

    def let_go(self, steps: Collection[str]) -> None:
        """Have steps moved again that somebody has moved by hand."""
        self.held = {step: at for step, at in self.held.items() if step not in steps}
        self.held_before = {step: at for step, at in self.held_before.items() if step not in steps}

    def hold_only(self, sites: Mapping[str, str]) -> None:
        """Let go what is not where it was to be held: its move came to nothing, and it is held as before, if it was."""
        both = {step: [at, self.held_before.get(step, at)] for step, at in self.held.items()}
        self.held = {step: sites[step] for step, places in both.items() if sites.get(step) in places}

    def rest_from(self, now_s: float) -> None:
        """Take note that the last move is over: from now on what it has held up is made up for."""
        self.moved_s = [*self.moved_s[:-1], now_s]

    def bar(self, site: str, now_s: float, why: str = BROKE) -> None:
        """Leave a site alone for a while, twice as long as the last time."""
        times = self.barred[site].times + 1 if site in self.barred else 1
        self.barred = {**self.barred, site: Bar(now_s + self.bar_s(times), times, why)}

    def clamp(self, now_s: float) -> None:
        """Take note of what time it is: no move was later, and no site is left alone for longer than from now on."""
        if any(at_s > now_s for at_s in self.moved_s):
            self.moved_s = [min(at_s, now_s) for at_s in self.moved_s]
        for bar in self.barred.values():
            bar.until_s = min(bar.until_s, now_s + self.bar_s(bar.times))

    def bar_s(self, times: int) -> float:
        """Return for how long a site is left alone the so-manyeth time."""
        return self.rest_s * 2.0 ** min(times, 10)

    def refused(self, decision: Decision, site: str, now_s: float) -> None:
        """Let nothing more come to the site that did not take its part, or, where steps were to leave that, to where to."""
        targets = dict.fromkeys(to for _, to in decision.moves.values())
        for name in [site] if site in targets else targets:
            self.bar(name, now_s, REFUSED)
