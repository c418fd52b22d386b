"""The CEP dataflows of Ghosh and Simmhan: what queries cost, random DAGs, and files of replicas."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwater.errors import PlacementError, suggestion
from headwater.flow.profile import Profile, StepProfile
from headwater.net.arrays import Floats
from headwater.net.device import AZURE_D2, PI_2_BATTERY
from headwater.net.generate import pis_and_vm
from headwater.place.problem import Model, Problem


@dataclass(frozen=True, slots=True)
class Query:
    """What a query costs: records/s at peak on a Pi 2 and on an Azure D2, and the Pi's current there."""

    kind: str
    selectivity: float
    peak_pi_hz: float
    peak_vm_hz: float
    pi_ma: float


# kind, then per variant: name, selectivity, peak on the Pi, peak on the VM, milliamperes
_MEASURED: dict[str, tuple[tuple[str, float, float, float, float], ...]] = {
    "filter": (
        ("Fil 1.0", 1, 86_971, 321_413, 337.04),
        ("Fil 0.5", 0.5, 117_150, 385_952, 336.91),
        ("Fil 0.0", 0, 204_633, 529_803, 337.41),
    ),
    "sequence": (
        ("Seq3 1.0", 1, 33_958, 248_896, 340.91),
        ("Seq3 0.5", 0.5, 43_470, 263_332, 342.45),
        ("Seq3 0.0", 0, 62_347, 352_617, 342.62),
        ("Seq5 1.0", 1, 22_693, 190_257, 341.27),
        ("Seq5 0.5", 0.5, 31_945, 224_290, 342.42),
        ("Seq5 0.0", 0, 45_304, 314_746, 344.44),
    ),
    "pattern": (
        ("Pat3 1.0", 1, 34_198, 238_017, 340.88),
        ("Pat5 1.0", 1, 23_106, 190_590, 352.33),
    ),
    "batch": (
        ("AggB 60", 1 / 60, 107_665, 334_008, 393.68),
        ("AggB 600", 1 / 600, 113_092, 331_137, 396.55),
        ("AggB 6000", 1 / 6000, 110_991, 332_177, 387.84),
    ),
    "sliding": (
        ("AggS 60", 1, 55_130, 236_521, 393.92),
        ("AggS 600", 1, 56_074, 225_908, 393.72),
        ("AggS 6000", 1, 52_486, 230_313, 393.41),
    ),
}
QUERIES = {row[0]: Query(kind, *row[1:]) for kind, rows in _MEASURED.items() for row in rows}
"""The 17 queries that the published dataflows use."""

# Quartiles are only drawn in the paper; these widths are read off the plots.
PEAK_SPREAD, CURRENT_SPREAD = 0.02, 0.01
LAN_S, WAN_S = (0.19e-3, 0.20e-3, 0.22e-3), (122.3e-3, 124e-3, 125.7e-3)
LAN_BPS, WAN_BPS = (95.5e6, 96e6, 96.3e6), (56e6, 64e6, 72e6)
RECORD_BYTES = 10.0
SETTINGS = tuple((rate, resources) for rate in (100, 1000) for resources in ("liberal", "conservative"))


@dataclass(frozen=True, eq=False)
class Dag:
    """A dataflow of queries: sources first, sinks last, with sampled costs."""

    name: str
    sources: int
    sinks: int
    queries: tuple[str | None, ...]
    edges: tuple[tuple[int, int], ...]
    service_pi_s: Floats
    service_vm_s: Floats
    charge_mas: Floats
    lan_s: Floats
    wan_s: Floats


def profiles(steps: Mapping[str, str]) -> dict[str, Profile]:
    """Profiles from the paper's table, one per class: step → query, such as `{"low": "Fil 0.5"}`.

    >>> profiles({"low": "Fil 0.5"})["pi-2-battery"].of("low").selectivity
    {'out': 0.5}
    """
    for step, query in steps.items():
        if query not in QUERIES:
            raise PlacementError(f"step '{step}': there is no query '{query}' in the table{suggestion(query, QUERIES)}")
    peaks = {
        PI_2_BATTERY.name: {step: QUERIES[q].peak_pi_hz for step, q in steps.items()},
        AZURE_D2.name: {step: QUERIES[q].peak_vm_hz for step, q in steps.items()},
    }
    return {
        device: Profile("table", device, {step: _profiled(QUERIES[steps[step]], peak) for step, peak in own.items()})
        for device, own in peaks.items()
    }


def _profiled(query: Query, peak_hz: float) -> StepProfile:
    return StepProfile(1 / peak_hz, 0.0, {"out": query.selectivity}, RECORD_BYTES, RECORD_BYTES, form="cep")


def problem(dag: Dag, rate_hz: float, resources: str = "liberal") -> Problem:
    """Place a dataflow on one machine and identical Pis: |V| − 1 when liberal, |V| / 2 when conservative.

    Each source has a Pi of its own, numbered from 0; all sinks are on the machine.
    """
    n = len(dag.queries)
    if resources not in ("liberal", "conservative"):
        raise PlacementError(f"resources must be 'liberal' or 'conservative'; got '{resources}'")
    devices = n - 1 if resources == "liberal" else n // 2
    pi = dataclasses.replace(PI_2_BATTERY, access_bps=math.inf)  # the paper puts no limit on bandwidth
    net = pis_and_vm(devices, pi=pi, vm=dataclasses.replace(AZURE_D2, access_bps=math.inf))
    step_hz, out_hz = rates(dag, rate_hz)
    pinned = np.full(n, -1)
    pinned[: dag.sources] = np.arange(dag.sources)
    pinned[n - dag.sinks :] = devices
    tail, head = np.array(dag.edges).T
    return Problem(
        name=f"{dag.name}-{rate_hz:g}-{resources}",
        net=net,
        model=Model.ROUND_ROBIN,
        steps=tuple(f"q{i}" for i in range(n)),
        service_s=np.stack([dag.service_pi_s, dag.service_vm_s], axis=1),
        rate_hz=step_hz,
        stream_from=tail,
        stream_to=head,
        stream_hz=out_hz[tail],
        stream_bytes=np.full(len(tail), RECORD_BYTES),
        pinned=pinned,
        charge_mas=np.stack([dag.charge_mas, np.zeros(n)], axis=1),
        hop_s=np.stack([dag.lan_s, dag.wan_s], axis=1),
    )


def rates(dag: Dag, rate_hz: float) -> tuple[Floats, Floats]:
    """Records per second into and out of every vertex; the input is split evenly over the sources."""
    n = len(dag.queries)
    into, out = np.zeros(n), np.zeros(n)
    into[: dag.sources] = out[: dag.sources] = rate_hz / dag.sources
    for step in range(dag.sources, n):  # every edge leads to a later vertex
        into[step] = sum(out[a] for a, b in dag.edges if b == step)
        query = dag.queries[step]
        assert query is not None
        out[step] = into[step] * QUERIES[query].selectivity
    return into, out


def read(path: str | Path) -> list[Dag]:
    """Read a replica file: a JSON list of dataflows."""
    try:
        rows = json.loads(Path(path).read_text())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as slip:
        raise PlacementError(f"replica file '{path}' cannot be read: {slip}") from slip
    if not isinstance(rows, list):
        raise PlacementError(f"replica file '{path}' must hold a list of dataflows; got {type(rows).__name__}")
    return [_dag(row, number) for number, row in enumerate(rows)]


def write(dags: list[Dag], path: str | Path) -> None:
    """Write dataflows in the form that `read` takes."""
    Path(path).write_text(json.dumps([_row(dag) for dag in dags], separators=(",", ":")) + "\n")


def _dag(row: Any, number: int) -> Dag:
    where = f"dataflow {number}"
    if not isinstance(row, dict):
        raise PlacementError(f"{where} must be a table; got {row!r:.60}")
    where = f"dataflow '{row.get('id', number)}'"
    try:
        n, edges = int(row["n"]), tuple((int(a), int(b)) for a, b in row["edges"])
        arrays = {key: np.array(row[key], np.float64) for key in _ARRAYS}
        dag = Dag(
            str(row["id"]),
            int(row["sources"]),
            int(row["sinks"]),
            tuple(row["queries"]),
            edges,
            *arrays.values(),
        )
    except (KeyError, TypeError, ValueError) as slip:
        raise PlacementError(f"{where} lacks a field or has a wrong one: {slip}") from slip
    for key, values in arrays.items():
        expected = len(edges) if key.startswith("net") else n
        if values.shape != (expected,):
            raise PlacementError(f"{where}: {key} must have {expected} numbers; got {len(values)}")
        if not np.isfinite(values).all():
            raise PlacementError(f"{where}: {key} must be finite numbers; got {values[~np.isfinite(values)][0]}")
    for query in dag.queries[dag.sources :]:
        if query not in QUERIES:
            raise PlacementError(f"{where} has an unknown query {query!r}; known: {', '.join(QUERIES)}")
    if any(not 0 <= a < b < n for a, b in edges):
        a, b = next((a, b) for a, b in edges if not 0 <= a < b < n)
        raise PlacementError(f"{where}: an edge must lead to a later vertex below {n}; got {a} → {b}")
    return dag


_ARRAYS = ("lam_pi_s", "lam_vm_s", "eps_mAs", "net_pp_s", "net_pa_s")


def _row(dag: Dag) -> dict[str, Any]:
    arrays = (dag.service_pi_s, dag.service_vm_s, dag.charge_mas, dag.lan_s, dag.wan_s)
    return {
        "id": dag.name,
        "n": len(dag.queries),
        "sources": dag.sources,
        "sinks": dag.sinks,
        "queries": list(dag.queries),
        "edges": [list(edge) for edge in dag.edges],
        **{key: values.tolist() for key, values in zip(_ARRAYS, arrays, strict=True)},
    }


def draw(size: int, sources: int, *, seed: int, max_out: int = 3) -> Dag:
    """Draw a random dataflow in the paper's way: types uniform, then variants, redrawn until it is sound.

    Sound means that no query's input at 1,000 records/s exceeds what the machine can serve and that
    something comes out.
    """
    random = np.random.default_rng([seed, size, sources])
    for attempt in range(1000):
        edges, sinks = _draw_edges(random, size, sources, max_out)
        kinds = [str(random.choice(list(_MEASURED))) for _ in range(size - sources)]
        queries = [None] * sources + [str(random.choice([row[0] for row in _MEASURED[kind]])) for kind in kinds]
        dag = sampled(f"{size}_{sources}_{seed}", sources, sinks, tuple(queries), edges, seed=seed + attempt)
        into, out = rates(dag, 1000.0)
        peaks = [QUERIES[q].peak_vm_hz * (1 + PEAK_SPREAD) if q else math.inf for q in queries]
        if (into <= peaks).all() and out[size - sinks :].sum() > 0:
            return dag
    raise PlacementError(f"no sound dataflow of {size} vertices and {sources} sources in 1000 draws")


def _draw_edges(
    random: np.random.Generator, size: int, sources: int, max_out: int
) -> tuple[tuple[tuple[int, int], ...], int]:
    sinks = int(random.integers(1, min(3, size - sources) + 1))
    inner, outs = size - sinks, np.zeros(size, int)
    edges: set[tuple[int, int]] = set()
    for v in range(sources, size):
        free = [u for u in range(min(v, inner)) if outs[u] < max_out] or [int(random.integers(min(v, inner)))]
        for u in random.permutation(free)[: random.integers(1, 3)].tolist():
            edges.add((u, v))
            outs[u] += 1
    for u in range(inner):
        if outs[u] == 0:
            edges.add((u, int(random.integers(max(u + 1, sources), size))))
    return tuple(sorted(edges, key=lambda edge: (edge[1], edge[0]))), sinks


def sampled(
    name: str,
    sources: int,
    sinks: int,
    queries: tuple[str | None, ...],
    edges: tuple[tuple[int, int], ...],
    *,
    seed: int,
) -> Dag:
    """Sample costs: one of the two middle quarters with equal chance, then uniformly inside it."""
    random = np.random.default_rng(seed)
    pi, vm, charge = np.zeros((3, len(queries)))
    for v, name_of in enumerate(queries):
        if name_of is not None:
            query = QUERIES[name_of]
            pi[v] = 1 / _sample(random, _around(query.peak_pi_hz, PEAK_SPREAD))
            vm[v] = 1 / _sample(random, _around(query.peak_vm_hz, PEAK_SPREAD))
            charge[v] = _sample(random, _around(query.pi_ma, CURRENT_SPREAD)) * pi[v]
    bits = 8 * RECORD_BYTES
    lan = np.array([_sample(random, LAN_S) + bits / _sample(random, LAN_BPS) for _ in edges])
    wan = np.array([_sample(random, WAN_S) + bits / _sample(random, WAN_BPS) for _ in edges])
    return Dag(name, sources, sinks, queries, edges, pi, vm, charge, lan, wan)


def _around(middle: float, spread: float) -> tuple[float, float, float]:
    return middle * (1 - spread), middle, middle * (1 + spread)


def _sample(random: np.random.Generator, quartiles: tuple[float, float, float]) -> float:
    q1, q2, q3 = quartiles
    return float(random.uniform(q1, q2) if random.random() < 0.5 else random.uniform(q2, q3))


def problem_of_file(path: Path, case: str | None, hz: float, resources: str) -> tuple[str, int, Problem]:
    """Return the dataflow of a file that is asked for (the first if none is), how many others there are, and its problem."""
    dags = {dag.name: dag for dag in read(path)}
    if not dags:
        raise PlacementError(f"file '{path}' holds no dataflow")
    name = next(iter(dags)) if case is None else case
    if name not in dags:
        raise PlacementError(f"file '{path}' has no dataflow '{name}'{suggestion(name, dags)}")
    return name, len(dags) - 1, problem(dags[name], hz, resources)
