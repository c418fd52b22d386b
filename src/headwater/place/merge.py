"""Several flows as one problem, so that they are placed together rather than one on what the other leaves.

Every limit then counts the load of all flows, whatever the strategy; a measure such as `critical` is that of the slowest
flow, `aggregate` that of all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headwater.errors import PlacementError
from headwater.net.arrays import Flags
from headwater.place.placement import Placement
from headwater.place.problem import Problem


def merge(problems: Sequence[Problem]) -> Problem:
    """One problem of all flows' steps, each called `flow/step`; a single flow is returned as it is."""
    first = problems[0]
    if len(problems) == 1:
        return first
    _check(problems)
    starts = np.cumsum([0, *(len(p.steps) for p in problems)]).tolist()
    shifted = list(zip(problems, starts, strict=False))
    changes: dict[str, Any] = {
        field.name: np.concatenate([getattr(p, field.name) for p in problems])
        for field in dataclasses.fields(Problem)
        if isinstance(getattr(first, field.name), np.ndarray)
    }
    for end in ("stream_from", "stream_to"):
        changes[end] = np.concatenate([getattr(p, end) + start for p, start in shifted])
    changes |= {
        "name": " + ".join(p.name for p in problems),
        "steps": tuple(f"{p.name}/{step}" for p in problems for step in p.steps),
        "together": tuple(tuple(i + start for i in group) for p, start in shifted for group in p.together),
        "closed": frozenset().union(*(p.closed for p in problems)),
        "at_most": tuple(dict.fromkeys(target for p in problems for target in p.at_most)),
        "zone_allowed": _zones_allowed(problems),
    }
    return dataclasses.replace(first, **changes)


def _check(problems: Sequence[Problem]) -> None:
    first = problems[0]
    names = [p.name for p in problems]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlacementError(f"two flows are called '{twice}'; flows that share a net need different names")
    for other in problems[1:]:
        if other.net is not first.net:
            raise PlacementError(f"flow '{other.name}' is for net '{other.net.name}', not '{first.net.name}'")
        if other.model is not first.model or other.bits_per_byte != first.bits_per_byte:
            raise PlacementError(f"flows '{first.name}' and '{other.name}' reckon time in different ways")
    for problem in problems:
        if problem.hop_s is not None or problem.taken:
            raise PlacementError(f"flow '{problem.name}' has streams of its own times or shares devices already")


def _zones_allowed(problems: Sequence[Problem]) -> Flags | None:
    if all(p.zone_allowed is None for p in problems):
        return None
    zones = len(problems[0].net.zones)
    return np.concatenate(
        [p.zone_allowed if p.zone_allowed is not None else np.ones((len(p.steps), zones), bool) for p in problems]
    )


def by_flow(placement: Placement, flows: Iterable[str]) -> dict[str, dict[str, str]]:
    """A placement of several flows, by flow: flow → step → device."""
    placed = placement.by_name
    return {
        flow: {step.removeprefix(f"{flow}/"): at for step, at in placed.items() if step.startswith(f"{flow}/")}
        for flow in flows
    }
