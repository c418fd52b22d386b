"""What the flows need, measured once for a sitting: at the rates of the mix and, where it is asked for, near a full lane.

A line through two points says little of rates many times higher: by profiles of the mix a lane was promised a quarter of
what it can keep, or more than that.
"""

from __future__ import annotations

from pathlib import Path

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand, Profile
from headwater.rate import demanding
from headwater_bench.experiments.rates.lap import BOUND_S
from headwater_bench.experiments.rates.loads import Judge, Offered, flow_of
from headwater_bench.experiments.rates.two import promisable_hz

_NEAR = 1.3  #: times the rate at which it was measured, up to which a profile is believed
_ROUNDS = 4


def of_mix(mix: dict[str, float], folder: Path, point_s: float) -> dict[str, str]:
    """Measure every flow at its rate, and return the files by flow."""
    paths = {}
    for name, rate_hz in mix.items():
        path = folder / f"{name}.json"
        _measured(name, rate_hz, point_s).write(path)
        paths[name] = str(path)
    return paths


def of_full_lane(name: str, path: str) -> str:
    """Return the file of a flow's profile near the highest rate that one lane may have, measured at the first call."""
    full = Path(path).with_name(f"{name}-full.json")
    if not full.exists():
        most_hz = promisable_hz(_demand(Profile.load(Path(path))), 1)
        for _ in range(_ROUNDS):
            profile, was_hz = _measured(name, most_hz), most_hz
            most_hz = promisable_hz(_demand(profile), 1)
            if was_hz / _NEAR < most_hz < was_hz * _NEAR:
                break
        profile.write(full)
    return str(full)


def _measured(name: str, rate_hz: float, point_s: float = 1.0) -> Profile:
    return demanding(flow_of(name, Offered([(0.0, rate_hz)]), Judge()), Contract(rate_hz, BOUND_S), point_s=point_s)


def _demand(profile: Profile) -> Demand:
    assert profile.demand is not None
    return profile.demand
