"""Random small problems for the placement tests."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import strategies as st

from headwater import net as nets
from headwater.place.problem import Model, Problem
from headwater_bench.cases import ghosh


def edges(random: np.random.Generator, n: int, extra: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Edges of a random acyclic graph in which every step but the first reads an earlier one."""
    pairs = {(int(random.integers(v)), v) for v in range(1, n)}
    pairs |= {(u, v) for v in range(n) for u in range(v) if random.random() < extra / n}
    tail, head = np.array(sorted(pairs, key=lambda e: (e[1], e[0]))).T
    return tail, head


def queue_problem(seed: int, *, n: int = 6, net: nets.Net | None = None, dense: bool = False, **changes) -> Problem:
    """A random flow under queue time on a small cloud-edge net, ends pinned."""
    random = np.random.default_rng(seed)
    net = net or nets.cloud_edge(2, 3, 3, seed=seed)
    tail, head = edges(random, n)
    rate = np.zeros(n)
    rate[0] = random.uniform(1_000, 10_000)
    out = rate.copy()
    for v in range(1, n):
        rate[v] = out[tail[head == v]].sum()
        out[v] = rate[v] * random.uniform(0.3, 1.0)
    work = random.uniform(1e3, 1e4, n) * (60 if dense else 1)
    work[0] = 0
    pinned = np.full(n, -1)
    pinned[0] = random.integers(len(net))
    pinned[n - 1] = random.integers(len(net))
    size = random.uniform(100, 2_500 if dense else 800, n)
    fields = {
        "name": f"random-{seed}",
        "net": net,
        "model": Model.QUEUE,
        "steps": tuple(f"s{i}" for i in range(n)),
        "service_s": work[:, None] / np.array([c.cpu_ips for c in net.classes]),
        "rate_hz": rate,
        "stream_from": tail,
        "stream_to": head,
        "stream_hz": out[tail],
        "stream_bytes": size[tail],
        "pinned": pinned,
        "memory_bytes": random.uniform(1e6, 4e8, n) if dense else np.zeros(n),
    }
    return Problem(**(fields | changes))


def cep_problem(
    seed: int, *, size: int = 6, sources: int = 1, rate: float = 1000.0, resources: str = "liberal"
) -> Problem:
    return ghosh.problem(ghosh.draw(size, sources, seed=seed), rate, resources)


def detour_problem(seed: int) -> Problem:
    """A CEP problem whose cloud is near but tiny, so that good placements go back and forth."""
    problem = cep_problem(seed, size=6, rate=2000.0)
    random = np.random.default_rng(seed)
    hop = problem.hop_s.copy()
    hop[:, 1] = random.uniform(1e-6, 3e-5, len(hop))
    hop[:, 0] = random.uniform(1e-4, 2e-4, len(hop))
    return dataclasses.replace(problem, hop_s=hop)


seeds = st.integers(0, 2**31 - 1)
INF = math.inf
