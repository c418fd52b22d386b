"""A placement problem from a flow, its profile and a net."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from headwater.errors import PlacementError, listed
from headwater.flow.duration import microseconds_of
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile, StepProfile
from headwater.flow.steps import DeadLetters
from headwater.net.arrays import Floats, Ints
from headwater.net.device import KNOWN
from headwater.net.net import Net
from headwater.place.constraints import Constraints, constrain
from headwater.place.problem import Model, Problem

FREE = StepProfile(time_s=0.0)
GATHER_S = 0.0075
"""Seconds that a record waits at its source in the mean: the engine lets few of them gather for twice as long."""
CHECKPOINT_S = 0.015
"""Seconds that a checkpoint takes where nothing else is known, until what has waited for it is on its way."""


def problem_of(
    flow: Flow,
    net: Net,
    profile: Profile | Mapping[str, Profile],
    rates_hz: float | Mapping[str, float],
    *,
    measured_ips: float | None = None,
    model: Model = Model.ENGINE,
    constraints: Constraints | None = None,
    every: str | None = None,
    checkpoint_s: float = CHECKPOINT_S,
) -> Problem:
    """Ask where the steps of a flow should run.

    `rates_hz` is what each source brings, or one number for all. `profile` was measured on one device,
    whose speed is that of the class it names or `measured_ips`; times on other classes scale with their
    instructions per second. Give one profile per class where they were measured. A class without a profile
    is then not used. A source stands where `constraints` pin it, or else where the net has a sensor of its name; see
    `require_places`. With `every`, it is asked of a flow that sites run with a checkpoint that often: its records gather at
    their sources, and wait for a checkpoint, which takes `checkpoint_s`, where they cross from site to site.
    """
    if every is not None:
        net = net.with_waits(bridge_s(every, checkpoint_s))
    for one in [profile] if isinstance(profile, Profile) else profile.values():
        _check_profile(flow, one)
    order = flow.in_order()
    number = {step.name: i for i, step in enumerate(order)}
    first = profile if isinstance(profile, Profile) else next(iter(profile.values()))
    costs = [FREE if isinstance(step.kind, DeadLetters) else _of(first, step.name) for step in order]
    # a source is where its sensor is and costs no processor: what was measured there is reading a file or
    # drawing
    costs = [replace(c, time_s=0.0, overhead_s=0.0) if s.is_source else c for s, c in zip(order, costs, strict=True)]
    rate, out = np.zeros(len(order)), dict[tuple[str, str], float]()
    tails, heads, stream_hz, stream_bytes = [], [], [], []
    for i, step in enumerate(order):
        if step.is_source:
            rate[i] = _source_rate(step.name, rates_hz, [s.name for s in order if s.is_source])
        for edge in step.inputs:
            flowing = out[edge.step, edge.port]
            rate[i] += flowing
            tails.append(number[edge.step])
            heads.append(i)
            stream_hz.append(flowing)
            stream_bytes.append(costs[number[edge.step]].bytes_out)
        for port in step.outputs:
            out[step.name, port] = rate[i] * costs[i].selectivity.get(port, 1.0)
    names = [step.name for step in order]
    service = _seconds("time_s", profile, net, names, costs, measured_ips)
    per_batch = _seconds("overhead_s", profile, net, names, costs, measured_ips)
    extra = np.array([max(c.busy_ma - c.idle_ma, 0.0) for c in net.classes])
    problem = Problem(
        name=flow.name,
        net=net,
        model=model,
        steps=tuple(number),
        service_s=service,
        rate_hz=rate,
        stream_from=np.array(tails, np.int64),
        stream_to=np.array(heads, np.int64),
        stream_hz=np.array(stream_hz, np.float64),
        stream_bytes=np.array(stream_bytes, np.float64),
        pinned=_sensors(flow, net, constraints),
        overhead_s=np.where(np.isfinite(service), per_batch, 0.0),
        charge_mas=np.where(np.isfinite(service), service, 0.0) * extra,
        memory_bytes=np.array([float(cost.state_bytes) for cost in costs]),
        window_s=np.array([GATHER_S if step.is_source and every is not None else 0.0 for step in order]),
    )
    return constrain(problem, constraints) if constraints else problem


def bridge_s(every: str, checkpoint_s: float = CHECKPOINT_S) -> float:
    """Return how long a record waits before it crosses to another site, in the mean, where checkpoints come that often.

    It waits until the next one begins, and until that is done; one that takes longer than `every` is followed at once.

    >>> bridge_s("100 ms"), bridge_s("100 ms", 0.25)
    (0.065, 0.375)
    """
    return max(microseconds_of("every", every) / 1e6, checkpoint_s) / 2 + checkpoint_s


def require_places(problem: Problem, sources: Iterable[str]) -> None:
    """Refuse a problem of which a source may stand anywhere: a plan would move the sensor to wherever it is cheapest."""
    for name in sources:
        if problem.pinned[problem.step(name)] < 0:
            raise PlacementError(
                f"source '{name}' has no place: say at which device its records come in, with --pin {name}=DEVICE (or "
                f"SITE, where it has one device), "
                f'or in the net file with sensors = ["{name.rpartition("/")[2]}"] at that device'
            )


def _sensors(flow: Flow, net: Net, constraints: Constraints | None) -> Ints:
    """Where the net has sensors of a flow's sources, unless these are pinned elsewhere; −1 for all other steps."""
    standing = dict(net.sensors)
    pins = constraints.pins if constraints else {}
    return np.array(
        [standing.get(s.name, -1) if s.is_source and s.name not in pins else -1 for s in flow.in_order()], np.int64
    )


def _check_profile(flow: Flow, profile: Profile) -> None:
    """Refuse a profile of which no step costs anything: it saw no record, and would put everything anywhere."""
    steps = [s.name for s in flow.in_order() if not s.is_source and s.name in profile.steps]
    if steps and not any(profile.steps[s].time_s or profile.steps[s].overhead_s for s in steps):
        raise PlacementError(
            f"the profile of flow '{profile.flow}' is empty: no step took any time, so none has seen a record; "
            "run 'headwater profile' with an input that has some"
        )


def _of(profile: Profile, step: str) -> StepProfile:
    if step not in profile.steps:
        raise PlacementError(
            f"step '{step}' has no profile; measured are {listed(profile.steps)}. "
            "Run 'headwater profile' again after a change of the flow"
        )
    return profile.steps[step]


def _source_rate(name: str, rates_hz: float | Mapping[str, float], sources: list[str]) -> float:
    if not isinstance(rates_hz, Mapping):
        return float(rates_hz)
    unknown = set(rates_hz) - set(sources)
    if unknown:
        raise PlacementError(f"a rate is given for '{min(unknown)}'; the sources are {listed(sources)}")
    if name not in rates_hz:
        raise PlacementError(f"source '{name}' has no rate; rates are given for {listed(rates_hz)}")
    return float(rates_hz[name])


def _seconds(
    field: str,
    profile: Profile | Mapping[str, Profile],
    net: Net,
    steps: list[str],
    costs: list[StepProfile],
    measured_ips: float | None,
) -> Floats:
    """Read one field of the profiles, seconds, for every step and class."""
    if not isinstance(profile, Profile):
        unknown = set(profile) - {c.name for c in net.classes}
        if unknown:
            raise PlacementError(f"a profile is given for class '{min(unknown)}', which net '{net.name}' lacks")
        columns = []
        free = {s for s, cost in zip(steps, costs, strict=True) if cost.time_s == 0 and cost.overhead_s == 0}
        for kind in net.classes:
            measured = profile.get(kind.name)
            times = [0.0 if s in free else getattr(_of(measured, s), field) if measured else np.inf for s in steps]
            columns.append(times)
        return np.array(columns).T
    speeds = {c.name: c.cpu_ips for c in (*KNOWN.values(), *net.classes)}
    ips = measured_ips or speeds.get(profile.device)
    if ips is None:
        raise PlacementError(
            f"the profile was measured on '{profile.device}', which is no class of net '{net.name}' "
            f"({listed(c.name for c in net.classes)}); say how fast it is with measured_ips"
        )
    time = np.array([getattr(cost, field) for cost in costs])
    return np.asarray(time[:, None] * ips / np.array([c.cpu_ips for c in net.classes]))
