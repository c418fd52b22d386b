"""A placement problem as frozen arrays: steps and streams with their rates, and the net to carry them.

Four models of time share the same arrays:

engine       what our engine does: one worker per device, shared by its steps, and an overhead for each activation
queue        every step is its own M/M/1 queue, every stream an M/M/1 queue on its link (Veith et al.)
shared       as queue, but the steps of a device share its processor: s / (1 − utilisation of the device)
round-robin  every step of a device waits for one turn of all the others (Ghosh and Simmhan)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from headwater.errors import PlacementError, suggestion
from headwater.net.arrays import Flags, Floats, Ints
from headwater.net.net import Net

TURN = 50
"""Records that one activation takes on a busy engine (the default of its option `take`)."""


class Model(StrEnum):
    """How time on devices and links is reckoned."""

    QUEUE = "queue"
    SHARED = "shared"
    ROUND_ROBIN = "round-robin"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What other flows already use of one device."""

    utilisation: float = 0.0
    memory_bytes: float = 0.0
    access_bps: float = 0.0
    draw_ma: float = 0.0
    turn_s: float = 0.0
    """Seconds that one turn of their steps takes."""
    fastest_hz: float = 0.0
    """Records per second of their busiest step."""

    def plus(self, other: DeviceUse) -> DeviceUse:
        """Return the use of both."""
        return DeviceUse(
            self.utilisation + other.utilisation,
            self.memory_bytes + other.memory_bytes,
            self.access_bps + other.access_bps,
            self.draw_ma + other.draw_ma,
            self.turn_s + other.turn_s,
            max(self.fastest_hz, other.fastest_hz),
        )


NOTHING_TAKEN = DeviceUse()


@dataclass(frozen=True, eq=False)
class Problem:
    """Which step should run on which device?

    Step arrays have one row per step, stream arrays one per stream. `service_s` and `charge_mas` have a
    column per device class: seconds, and milliampere-seconds, per record; an infinite service time says
    that the class cannot run the step. A step that costs nothing anywhere (a source) has service time 0.
    """

    name: str
    net: Net
    model: Model
    steps: tuple[str, ...]
    service_s: Floats
    rate_hz: Floats
    """Records per second that enter each step."""
    stream_from: Ints
    stream_to: Ints
    stream_hz: Floats
    stream_bytes: Floats
    pinned: Ints
    """The device of each pinned step, −1 for a free one."""
    charge_mas: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    overhead_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Seconds per activation on each class, whatever the number of records: counts under `engine` alone."""
    memory_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    window_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds until a window fills, or a source has gathered: part of latency that no placement can change."""
    window_records: Floats = field(default_factory=lambda: np.zeros(0))
    """Records that fill the window, 0 where time does: with more of them per second it fills sooner."""
    share: Floats = field(default_factory=lambda: np.zeros(0))
    """The part of the records that a step takes of those sent to it and its copies; 1 for a step without any."""
    hop_s: Floats | None = None
    """Measured seconds per stream between two devices, in one zone and across zones; replaces net latency."""
    zone_allowed: Flags | None = None
    """For each step and zone, whether trust allows it; None allows all."""
    together: tuple[tuple[int, ...], ...] = ()
    """Groups of steps that must share a device."""
    bits_per_byte: float = 8.0
    taken: Mapping[int, DeviceUse] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()
    """Devices that are lost or must not be used."""
    at_most: tuple[tuple[tuple[tuple[str, float], ...], float], ...] = ()
    """Targets: weighted sums of measures, as an objective has them, each with its largest allowed value."""

    def __post_init__(self) -> None:
        n, kinds = len(self.steps), len(self.net.classes)
        for name in ("charge_mas", "overhead_s", "memory_bytes", "window_s", "window_records", "share"):
            if getattr(self, name).size == 0:
                shape = (n, kinds) if name in ("charge_mas", "overhead_s") else (n,)
                object.__setattr__(self, name, np.full(shape, 1.0 if name == "share" else 0.0))
        self._check_steps(n, kinds)
        self._check_streams(n)
        self._check_pins(n)
        _ = self.order  # a cycle is an error of the description, so it shows here

    def _check_steps(self, n: int, kinds: int) -> None:
        if n == 0:
            raise PlacementError(f"problem '{self.name}' has no steps")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("service_s", "charge_mas", "overhead_s"), (n, kinds))
        shapes |= dict.fromkeys(("rate_hz", "memory_bytes", "window_s", "window_records", "share", "pinned"), (n,))
        for name, shape in shapes.items():
            values = getattr(self, name)
            if values.shape != shape:
                raise PlacementError(f"problem '{self.name}': {name} must be {shape}; got {values.shape}")
            if name == "pinned":
                continue
            bad = np.isnan(values) | (values < 0)
            if bad.any():
                step = self.steps[int(np.argwhere(bad)[0][0])]
                raise PlacementError(f"step '{step}': {name} must be 0 or more; got {values[bad].flat[0]}")

    def _check_streams(self, n: int) -> None:
        m = len(self.stream_from)
        for name in ("stream_to", "stream_hz", "stream_bytes"):
            if len(getattr(self, name)) != m:
                raise PlacementError(f"problem '{self.name}': {name} must have {m} entries, one per stream")
        for e in range(m):
            a, b = int(self.stream_from[e]), int(self.stream_to[e])
            if not (0 <= a < n and 0 <= b < n):
                raise PlacementError(f"stream {e} joins steps {a} and {b}; there are {n} steps")
            for name in ("stream_hz", "stream_bytes"):
                value = float(getattr(self, name)[e])
                if not value >= 0:
                    where = f"stream '{self.steps[a]}' → '{self.steps[b]}'"
                    raise PlacementError(f"{where}: {name} must be 0 or more; got {value}")

    def _check_pins(self, n: int) -> None:
        for i in range(n):
            device = int(self.pinned[i])
            if device >= len(self.net):
                raise PlacementError(
                    f"step '{self.steps[i]}' is pinned to device {device}; the net has {len(self.net):,}"
                )
        for group in self.together:
            pins = {int(self.pinned[i]): self.steps[i] for i in group if self.pinned[i] >= 0}
            if len(pins) > 1:
                (a, step_a), (b, step_b) = list(pins.items())[:2]
                raise PlacementError(
                    f"steps '{step_a}' and '{step_b}' must share a device, but are pinned to "
                    f"'{self.net.device_name(a)}' and '{self.net.device_name(b)}'"
                )
            if pins:  # who must share a pinned step's device is pinned as well
                pinned = self.pinned.copy()
                pinned[list(group)] = next(iter(pins))
                object.__setattr__(self, "pinned", pinned)

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """For each step, its incoming streams."""
        return self._streams_by(self.stream_to)

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """For each step, its outgoing streams."""
        return self._streams_by(self.stream_from)

    def _streams_by(self, end: Ints) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in self.steps]
        for stream, step in enumerate(end.tolist()):
            lists[step].append(stream)
        return tuple(tuple(streams) for streams in lists)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The steps in deployment order: sources first, then breadth first, each after all that it reads.

        A step met before its inputs goes back to the end of the queue (algorithm 1 of Veith et al.).
        """
        order = list(self.sources)
        done, queue = set(order), deque[int]()
        self._enqueue_after(order, done, queue)
        turned_back = 0
        while queue:
            step = queue.popleft()
            if all(int(self.stream_from[e]) in done for e in self.inputs[step]):
                order.append(step)
                done.add(step)
                self._enqueue_after([step], done, queue)
                turned_back = 0
            else:
                queue.append(step)
                turned_back += 1
                if turned_back > len(queue):
                    break
        if len(order) < len(self.steps):
            stuck = next(name for i, name in enumerate(self.steps) if i not in done)
            raise PlacementError(
                f"problem '{self.name}' has a cycle: step '{stuck}' waits for itself; a flow must be acyclic"
            )
        return tuple(order)

    def _enqueue_after(self, steps: list[int], done: set[int], queue: deque[int]) -> None:
        for step in steps:
            for e in self.outputs[step]:
                after = int(self.stream_to[e])
                if after not in done and after not in queue:
                    queue.append(after)

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """The steps without input."""
        return tuple(i for i, streams in enumerate(self.inputs) if not streams)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """The steps without output."""
        return tuple(i for i, streams in enumerate(self.outputs) if not streams)

    @cached_property
    def paths_to(self) -> Floats:
        """For each step, the number of paths from any source to it; a copy counts as its share of one step."""
        count = np.zeros(len(self.steps))
        for step in self.order:
            count[step] = self.share[step] * (sum(count[self.stream_from[e]] for e in self.inputs[step]) or 1.0)
        return count

    @cached_property
    def paths_from(self) -> Floats:
        """For each step, the number of paths from it to any sink, its own share left to `paths_to`."""
        count = np.zeros(len(self.steps))
        for step in reversed(self.order):
            after = [int(self.stream_to[e]) for e in self.outputs[step]]
            count[step] = sum(self.share[i] * count[i] for i in after) or 1.0
        return count

    @cached_property
    def step_paths(self) -> Floats:
        """For each step, the number of source-to-sink paths through it."""
        return np.asarray(self.paths_to * self.paths_from)

    @cached_property
    def stream_paths(self) -> Floats:
        """For each stream, the number of source-to-sink paths through it."""
        return np.asarray(self.paths_to[self.stream_from] * (self.share * self.paths_from)[self.stream_to])

    @cached_property
    def stream_bps(self) -> Floats:
        """Bits per second of each stream."""
        return np.asarray(self.stream_bytes_hz * self.bits_per_byte)

    @cached_property
    def stream_bytes_hz(self) -> Floats:
        """Bytes per second of each stream."""
        return np.asarray(self.stream_hz * self.stream_bytes)

    @property
    def shares_processor(self) -> bool:
        """Whether the steps of a device slow each other down by how busy it is: 1 / (1 − utilisation)."""
        return self.model in (Model.SHARED, Model.ENGINE)

    @cached_property
    def held_s(self) -> Floats:
        """Seconds that a step holds a record on each class when nothing else runs there."""
        return self.service_s + self.overhead_s if self.model is Model.ENGINE else self.service_s

    @cached_property
    def load(self) -> Floats:
        """The part of a processor of each class that a step keeps busy.

        The engine's activations take more records the more wait, so at its limit their overhead is spread over a whole turn.
        """
        spread = self.overhead_s / TURN if self.model is Model.ENGINE else 0.0
        with np.errstate(invalid="ignore"):  # no records on a class that cannot run the step: nothing times infinity
            load = self.rate_hz[:, None] * (self.service_s + spread)
        return np.where(np.isnan(load), np.inf, load)

    @cached_property
    def solid(self) -> Flags:
        """For each step, whether it needs any processor at all (sources often do not)."""
        return np.asarray((self.held_s > 0).any(axis=1))

    def step(self, name: str) -> int:
        """The number of the step called `name`."""
        if name not in self.steps:
            names = ", ".join(f"'{s}'" for s in self.steps[:8])
            slip = suggestion(name, self.steps)
            raise PlacementError(f"problem '{self.name}' has no step '{name}'; its steps begin {names}{slip}")
        return self.steps.index(name)

    def stream_name(self, stream: int) -> str:
        """A stream's name in messages: `'from' → 'to'`."""
        return f"'{self.steps[self.stream_from[stream]]}' → '{self.steps[self.stream_to[stream]]}'"
