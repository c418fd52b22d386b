"""The applications of Veith et al.: 13 random graphs, ten settings each, pinned to a cloud-edge net."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.errors import PlacementError, suggestion
from headwater.net.arrays import Flags, Floats, Ints
from headwater.net.net import Net
from headwater.place.problem import Model, Problem

SIZES = (5, 6, 7, 8, 9, *(25,) * 7, 50)
"""Operators of the 13 graphs: five medium, seven large, one extra-large."""
SETTINGS = 10


@dataclass(frozen=True, slots=True)
class Preset:
    """One reading of the paper's units."""

    name: str
    cpu_unit: float = 1.0
    """1 reads the paper's MIPS as thousands, as the net's classes do; 0.001 takes them at their word."""
    bits_per_byte: float = 8.0
    windows: bool = True
    work: float = 1.0
    """Factor on the instructions per record."""
    fitted: bool = True
    """Redraw rates and sizes until no source and no sink fills more than 80 % of its access link."""


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("veith"),
        Preset("veith-paper", bits_per_byte=1.0, fitted=False),
        Preset("veith-bits", fitted=False),
        Preset("veith-dense", work=100.0),
        Preset("veith-literal", cpu_unit=1e-3, fitted=False),
    )
}


def preset(name: str) -> Preset:
    """The preset called `name`."""
    if name not in PRESETS:
        raise PlacementError(f"there is no preset '{name}'{suggestion(name, PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True, eq=False)
class Graph:
    """The fixed shape of an application: sources are numbered first."""

    sources: int
    stream_from: Ints
    stream_to: Ints
    share: Floats
    """The part of a step's output that a stream carries: 1 where it is replicated."""
    stateful: Flags
    critical_sink: int

    @property
    def sinks(self) -> Ints:
        """The steps without output."""
        return np.setdiff1d(np.arange(len(self.stateful)), self.stream_from)


@dataclass(frozen=True, eq=False)
class Setting:
    """One draw of an application's numbers."""

    cpu: Floats
    compression: Floats
    memory_bytes: Floats
    selectivity: Floats
    source_hz: Floats
    source_bytes: Floats
    window: Floats


def graph(operators: int, seed: int) -> Graph:
    """Draw a connected acyclic graph: each step follows an earlier one, with some extra streams."""
    random = np.random.default_rng([seed, operators])
    sources = max(1, round(operators / 8))
    most = int(random.integers(3, 6))
    outs = np.zeros(operators, int)
    edges: list[tuple[int, int]] = []
    wanted_sinks = 2 if operators >= 6 else 1
    for step in range(sources, operators):
        idle = [s for s in range(min(step, sources)) if outs[s] == 0]
        leaves = [s for s in range(step) if outs[s] == 0]
        if idle and operators - step <= len(idle):
            parent = idle[0]
        elif len(leaves) > wanted_sinks and random.random() < 0.7:
            parent = int(random.choice(leaves))
        else:
            parent = int(random.choice([s for s in range(step) if outs[s] < most]))
        edges.append((parent, step))
        outs[parent] += 1
    _add_extra(random, edges, outs, most, sources, operators)
    return _shaped(random, edges, operators, sources)


def _add_extra(
    random: np.random.Generator,
    edges: list[tuple[int, int]],
    outs: Ints,
    most: int,
    sources: int,
    operators: int,
) -> None:
    for s in range(sources):
        if outs[s] == 0:
            edges.append((s, int(random.integers(sources, operators))))
            outs[s] += 1
    sinks = [s for s in range(operators) if outs[s] == 0]
    for _ in range(round(0.15 * operators)):
        a = int(random.choice([s for s in range(operators) if s not in sinks]))
        later = [b for b in range(max(a + 1, sources), operators) if (a, b) not in edges]
        if later and outs[a] < most:
            edges.append((a, int(random.choice(later))))
            outs[a] += 1


def _shaped(random: np.random.Generator, edges: list[tuple[int, int]], operators: int, sources: int) -> Graph:
    tail, head = np.array(edges).T
    share = np.ones(len(edges))
    for step in range(operators):
        out = np.flatnonzero(tail == step)
        if len(out) > 1 and random.random() < 0.5:  # this splitter partitions, the others replicate
            parts = random.dirichlet(np.ones(len(out)) * 4)
            share[out] = parts
    inner = np.setdiff1d(np.intersect1d(tail, head), np.arange(sources))
    stateful = np.zeros(operators, bool)
    stateful[random.permutation(inner)[: round(0.2 * operators)]] = True
    return Graph(sources, tail, head, share, stateful, _critical_sink(tail, head, operators))


def _critical_sink(tail: Ints, head: Ints, operators: int) -> int:
    depth = np.zeros(operators, int)
    for step in range(operators):  # every stream leads to a later step
        into = tail[head == step]
        depth[step] = depth[into].max() + 1 if len(into) else 0
    sinks = np.setdiff1d(np.arange(operators), tail)
    return int(sinks[np.argmax(depth[sinks])])


def graphs(seed: int = 0) -> list[Graph]:
    """The 13 application graphs."""
    return [graph(size, seed + number) for number, size in enumerate(SIZES)]


def setting(shape: Graph, number: int, reading: Preset, *, seed: int = 0, access_bps: float = 100e6) -> Setting:
    """Draw setting `number` of an application; the same number gives the same draw for every net."""
    random = np.random.default_rng([seed, number, len(shape.stateful), int(shape.share.size)])
    drawn = _draw(random, shape, reading)
    for _ in range(10_000):
        if not reading.fitted or _fits(shape, drawn, reading, 0.8 * access_bps):
            return drawn
        drawn = _draw(random, shape, reading)
    raise PlacementError(f"no setting of a graph with {len(shape.stateful)} operators fits its access links")


def _draw(random: np.random.Generator, shape: Graph, reading: Preset) -> Setting:
    n, s = len(shape.stateful), shape.sources
    window = np.where(shape.stateful, random.integers(1, 101, n), 0).astype(float)
    return Setting(
        cpu=random.uniform(1_000, 10_000, n) * reading.work,
        compression=random.uniform(0.1, 1.0, n),
        memory_bytes=random.uniform(100, 7_500, n),
        selectivity=random.uniform(0.1, 1.0, n),
        source_hz=random.uniform(1_000, 10_000, s),
        source_bytes=random.uniform(100, 2_500, s),
        window=window if reading.windows else np.zeros(n),
    )


def _fits(shape: Graph, drawn: Setting, reading: Preset, limit_bps: float) -> bool:
    _, stream_hz, stream_bytes, _ = rates(shape, drawn)
    bps = stream_hz * stream_bytes * reading.bits_per_byte
    leaving = np.bincount(shape.stream_from, bps, len(shape.stateful))[: shape.sources]
    arriving = np.bincount(shape.stream_to, bps, len(shape.stateful))[shape.sinks]
    return bool((leaving <= limit_bps).all() and (arriving <= limit_bps).all())


def rates(shape: Graph, drawn: Setting) -> tuple[Floats, Floats, Floats, Floats]:
    """Records per second into steps and on streams, bytes per record on streams and into steps."""
    n = len(shape.stateful)
    step_hz, step_bytes = np.zeros(n), np.zeros(n)
    out_hz, out_bytes = np.zeros(n), np.zeros(n)
    out_hz[: shape.sources], out_bytes[: shape.sources] = drawn.source_hz, drawn.source_bytes
    step_hz[: shape.sources], step_bytes[: shape.sources] = drawn.source_hz, drawn.source_bytes
    for step in range(shape.sources, n):  # every stream leads to a later step
        into = np.flatnonzero(shape.stream_to == step)
        flow = out_hz[shape.stream_from[into]] * shape.share[into]
        step_hz[step] = flow.sum()
        step_bytes[step] = (flow * out_bytes[shape.stream_from[into]]).sum() / flow.sum()
        out_hz[step] = step_hz[step] * drawn.selectivity[step]
        out_bytes[step] = step_bytes[step] * drawn.compression[step]
    return step_hz, out_hz[shape.stream_from] * shape.share, out_bytes[shape.stream_from], step_bytes


def problem(shape: Graph, drawn: Setting, net: Net, reading: Preset, *, seed: int = 0) -> Problem:
    """Pin an application's sources and sinks at random to a net; the critical path ends in a cloud."""
    n = len(shape.stateful)
    step_hz, stream_hz, stream_bytes, step_bytes = rates(shape, drawn)
    ends = np.zeros(n, bool)
    ends[: shape.sources] = ends[shape.sinks] = True
    speed = np.array([c.cpu_ips for c in net.classes]) * reading.cpu_unit
    work = np.where(ends, 0.0, drawn.cpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        window_s = np.where(drawn.window > 0, drawn.window / step_hz, 0.0)
    return Problem(
        name=f"{reading.name}-{n}",
        net=net,
        model=Model.QUEUE,
        steps=tuple(f"op-{i}" for i in range(n)),
        service_s=work[:, None] / speed,
        rate_hz=step_hz,
        stream_from=shape.stream_from,
        stream_to=shape.stream_to,
        stream_hz=stream_hz,
        stream_bytes=stream_bytes,
        pinned=_pins(shape, net, seed),
        memory_bytes=drawn.memory_bytes + drawn.window * step_bytes,
        window_s=window_s,
        window_records=drawn.window.astype(float),
        bits_per_byte=reading.bits_per_byte,
    )


def _pins(shape: Graph, net: Net, seed: int) -> Ints:
    random = np.random.default_rng([seed, len(shape.stateful), len(net)])
    clouds = np.flatnonzero(net.cloud_zones)
    edge = len(net) - len(clouds)  # clouds come first, one device each
    pinned = np.full(len(shape.stateful), -1)
    for step in (*range(shape.sources), *shape.sinks.tolist()):
        pinned[step] = len(clouds) + random.integers(edge)
    pinned[shape.critical_sink] = random.choice(clouds)
    return pinned
