"""Every constraint on a placement, once: as arrays for searches, as a linear form for programs, and in words.

Fit     whether a step may be on a device at all: a mask over devices; a program has no variable where it is false
Way     whether a stream can go between two devices: a mask over pairs; a program has no flow where it is false
Limit   what the steps of a device use of something together: used + use ≤ limit, in a search and as a row of a program

Beside these, `TOGETHER` (pairs of steps on one device) and `TURN` (round-robin time). Targets are data as they are
(`Problem.at_most`): a sum of measures, which every form has, and its limit.

`capacity`, `dense`, `program`, `score`, `account`, `why_not` and `explain` read them here. `verify` does not: it judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headwater.net.arrays import Flags, Floats, Ints
from headwater.net.device import DeviceClass
from headwater.place.problem import NOTHING_TAKEN, Model, Problem

Values = Floats | float
SLACK = 1e-9
"""Sums of floats may pass a limit by rounding: by this part of it."""


class Devices(NamedTuple):
    """Some devices as columns; −1 stands for one that is not named, in a zone that is not."""

    device: Ints
    kind: Ints
    zone: Ints


def devices(problem: Problem, numbers: Ints) -> Devices:
    """Devices of a problem's net, by number."""
    net = problem.net
    return Devices(numbers, net.class_of[numbers].astype(np.int64), net.zone_of(numbers))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint by name."""

    name: str
    words: str
    """Why a step has no device left, if this takes away the last ones."""


# -- whether a step may be on a device ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit(Constraint):
    """Whether a step may be on a device, whatever else runs there."""

    mask: Callable[[Problem, int, Devices], Flags | None]
    """Of a problem, a step and some devices, those where it may be; None where it asks nothing."""


def _open(problem: Problem, step: int, devices: Devices) -> Flags | None:
    return ~np.isin(devices.device, list(problem.closed)) if problem.closed else None


def _runs(problem: Problem, step: int, devices: Devices) -> Flags | None:
    of_class = np.isfinite(problem.held_s[step])
    return None if of_class.all() else np.asarray(of_class[devices.kind])


def _trusted(problem: Problem, step: int, devices: Devices) -> Flags | None:
    if problem.zone_allowed is None:
        return None
    return np.asarray(problem.zone_allowed[step][devices.zone] | (devices.zone < 0))


def _at_pin(problem: Problem, step: int, devices: Devices) -> Flags | None:
    return devices.device == problem.pinned[step] if problem.pinned[step] >= 0 else None


def _keeps_up(problem: Problem, step: int, devices: Devices) -> Flags | None:
    of_class = (problem.load[step] < 1) | ~np.isfinite(problem.held_s[step])
    return None if of_class.all() else np.asarray(of_class[devices.kind])


CLOSED = Fit("closed", "all are lost or closed", _open)
CLASS = Fit("class", "no class of device can run it", _runs)
ZONE = Fit("zone", "its input may not go to any trust zone with a fitting device", _trusted)
PIN = Fit("pin", "the device that it is pinned to does not fit", _at_pin)
RATE = Fit("rate", "its records come faster than any fitting device can serve", _keeps_up)
FITS = (CLOSED, CLASS, ZONE, PIN, RATE)


def fits(problem: Problem, step: int, devices: Devices, constraints: tuple[Fit, ...] = FITS) -> Flags:
    """The devices on which a step may be, as far as these constraints go."""
    allowed = np.ones(len(devices.device), bool)
    for constraint in constraints:
        mask = constraint.mask(problem, step, devices)
        if mask is not None:
            allowed &= mask
    return allowed


# -- whether a stream can go between two devices -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way(Constraint):
    """Whether a stream can go between two devices; inside one it always can."""

    is_open: Callable[[Values, Values, Values], Flags]
    """Of bits per second, the speed of the slower access link, and the latency; any of them may be arrays."""


LINK = Way(
    "link",
    "its streams are faster than the links of fitting devices",
    lambda bps, speed, latency_s: np.asarray((bps == 0) | (bps < speed)),
)
ROUTE = Way(
    "disconnected",
    "no fitting device can be reached from its neighbours",
    lambda bps, speed, latency_s: np.isfinite(latency_s),
)
WAYS = (LINK, ROUTE)


# -- what the steps of a device use together -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit(Constraint):
    """What a device has only so much of; its steps, the streams across its border and other flows use it together."""

    most: Callable[[DeviceClass], float]
    """How much a device of a class has."""
    step_use: Callable[[Problem], Floats]
    """What each step uses on each class."""
    per_byte: Callable[[Problem, DeviceClass], float]
    """What a stream across the border of a device uses per byte and second."""
    use_field: str
    """The field of `DeviceUse` that has what other flows use."""
    unit: str
    per_unit: float
    """How many there are to a unit that people read."""
    relaxation: tuple[str, str] | None
    """The field of a class that would have to be larger, and what it is in words."""
    idle: Callable[[DeviceClass], float] = lambda kind: 0.0
    """What a device uses as soon as any step is on it."""


def _load(problem: Problem) -> Floats:
    return np.where(np.isfinite(problem.held_s), problem.load, 0.0)


def _memory(problem: Problem) -> Floats:
    return np.repeat(problem.memory_bytes[:, None], len(problem.net.classes), axis=1)


CPU = Limit(
    "cpu",
    "no fitting device has enough processor left",
    most=lambda kind: 1.0,
    step_use=_load,
    per_byte=lambda problem, kind: 0.0,
    use_field="utilisation",
    unit="%",
    per_unit=0.01,
    relaxation=None,
)
MEMORY = Limit(
    "memory",
    "no fitting device has enough memory left",
    most=lambda kind: kind.memory_bytes,
    step_use=_memory,
    per_byte=lambda problem, kind: 0.0,
    use_field="memory_bytes",
    unit="MB",
    per_unit=1e6,
    relaxation=("memory_bytes", "memory"),
)
ENERGY = Limit(
    "energy",
    "no fitting device has enough battery left",
    most=lambda kind: kind.budget_ma,
    step_use=lambda problem: problem.rate_hz[:, None] * problem.charge_mas,
    per_byte=lambda problem, kind: kind.radio_mas_per_byte,
    use_field="draw_ma",
    unit="mA",
    per_unit=1.0,
    relaxation=("battery_mah", "battery"),
    idle=lambda kind: kind.idle_ma,
)
ACCESS = Limit(
    "access",
    "the access links of its neighbours or of all fitting devices are full",
    most=lambda kind: kind.access_bps,
    step_use=lambda problem: np.zeros((len(problem.steps), len(problem.net.classes))),
    per_byte=lambda problem, kind: problem.bits_per_byte,
    use_field="access_bps",
    unit="Mbit/s",
    per_unit=1e6,
    relaxation=("access_bps", "bandwidth"),
)
LIMITS = (CPU, MEMORY, ENERGY, ACCESS)


class LimitArrays(NamedTuple):
    """The coefficients of all limits of a problem: first index as in `LIMITS`, last one a class of device."""

    step: Floats
    """Limit × step × class."""
    per_byte: Floats
    idle: Floats
    most: Floats

    @property
    def room(self) -> Floats:
        """What steps, streams and other flows may use together, rounding allowed for."""
        return self.most * (1 + SLACK) - self.idle


def limits(problem: Problem) -> LimitArrays:
    """The coefficients of all limits."""
    classes = problem.net.classes
    return LimitArrays(
        np.stack([limit.step_use(problem) for limit in LIMITS]),
        np.array([[limit.per_byte(problem, kind) for kind in classes] for limit in LIMITS]),
        np.array([[limit.idle(kind) for kind in classes] for limit in LIMITS]),
        np.array([[limit.most(kind) for kind in classes] for limit in LIMITS]),
    )


def used_by_others(problem: Problem, device: int) -> list[float]:
    """What other flows use of a device, limit by limit."""
    others = problem.taken.get(device, NOTHING_TAKEN)
    return [getattr(others, limit.use_field) for limit in LIMITS]


def usage(problem: Problem, device: Ints) -> tuple[Ints, Floats]:
    """The hosts of a placement, and what it uses of each, limit by limit; without idle devices' own and other flows' use."""
    hosts, at = np.unique(device, return_inverse=True)
    arrays, kinds = limits(problem), problem.net.class_of[device]
    by_step = arrays.step[:, np.arange(len(device)), kinds]
    total = np.stack([np.bincount(at, row, len(hosts)) for row in by_step])
    crossing = device[problem.stream_from] != device[problem.stream_to]
    bytes_hz = problem.stream_bytes_hz[crossing]
    border = np.zeros(len(hosts))
    for end in (problem.stream_from, problem.stream_to):
        border += np.bincount(at[end[crossing]], bytes_hz, len(hosts))
    return hosts, total + arrays.per_byte[:, problem.net.class_of[hosts]] * border


def used_in_all(problem: Problem, device: Ints) -> tuple[Ints, Floats]:
    """As `usage`, with what idle devices and other flows use."""
    hosts, total = usage(problem, device)
    others = np.array([used_by_others(problem, d) for d in hosts.tolist()]).T
    return hosts, total + limits(problem).idle[:, problem.net.class_of[hosts]] + others


# -- the others ----------------------------------------------------------------------------------------------------------

TOGETHER = Constraint("together", "the device of a step that it must join does not fit")
TURN = Constraint(
    "turn", "a turn of all steps on any fitting device takes longer than its busiest step can wait"
)  # fmt: skip


def pairs_together(problem: Problem) -> Ints:
    """Pairs of steps that must be on one device."""
    pairs = [(group[0], other) for group in problem.together for other in group[1:]]
    return np.array(pairs, np.int64).reshape(-1, 2)


def has_turns(problem: Problem) -> bool:
    """Whether a record waits for one turn of all steps on its device."""
    return problem.model is Model.ROUND_ROBIN


def is_turn_kept(fastest_hz: Floats, turn_s: Floats) -> Flags:
    """Whether the busiest step of a device gets its turn before its next record."""
    return np.asarray(fastest_hz * turn_s < 1)


def longest_turn_s(fastest_hz: float) -> float:
    """The same for a program, which has no strict bounds."""
    return (1 - SLACK) / fastest_hz
