"""Is admission sound? Random mixes of flows, rates and latencies, beside SCAN: what is admitted must be kept.

Those that are refused are forced in, as protected as the others: if they want 1.3 times the cores that may be promised, most
must break.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.estimate import cores, tick_of
from headwater.rate.ledger import LANE, Ledger
from headwater_bench.experiments.rates.lap import Lap, started
from headwater_bench.experiments.rates.scan import scan

_LATENCIES_S = (0.02, 0.05, 0.1)
_SCAN = 100
FORCED = 1.3
"""Times the cores that may be promised, from which on a mix that is forced in must break."""


def measure(quick: bool, profiles: dict[str, str], home: Path, *, seed: int = 14) -> dict[str, Any]:
    """Run so many mixes that most figures of the answer do not hang on one of them."""
    chance = random.Random(seed)
    known = {name: Profile.load(Path(path)) for name, path in profiles.items()}
    mixes = 3 if quick else 30
    rows: list[dict[str, Any]] = []
    for number in range(mixes):
        forced = number % 5 == 4 or (quick and number == mixes - 1)
        mix = _mix(chance, known, forced)
        rows += [{"mix": number, "forced": forced, **row} for row in _run(mix, forced, 3, profiles, home)]
    return _answer(rows) | {"mixes": mixes, "cases": rows}


def _wanted(known: dict[str, Profile], name: str, rate_hz: float, bound_s: float) -> float:
    demand = known[name].demand
    assert demand is not None
    return cores(demand, rate_hz, tick_of(Contract(rate_hz, bound_s)))


def _mix(chance: random.Random, known: dict[str, Profile], forced: bool) -> list[tuple[str, float, float, float]]:
    """Draw flows until what they want is near what may be promised or, to be forced in, well above it."""
    capacity = Ledger().capacity
    goal = capacity * (chance.uniform(FORCED, 1.6) if forced else chance.uniform(0.4, 0.95))
    mix: list[tuple[str, float, float, float]] = []
    total, misses = 0.0, 0
    while (forced and total < goal) or (not forced and misses < 5):
        name, bound_s = chance.choice(list(known)), chance.choice(_LATENCIES_S)
        rate_hz = float(chance.randrange(60 if forced else 5, 120 if forced else 60)) * 1000
        wanted = _wanted(known, name, rate_hz, bound_s)
        while wanted > LANE:
            rate_hz *= 0.8
            wanted = _wanted(known, name, rate_hz, bound_s)
        if not forced and total + wanted > goal:
            misses += 1
            continue
        mix.append((name, rate_hz, bound_s, wanted))
        total += wanted
    return mix


def _run(
    mix: list[tuple[str, float, float, float]], forced: bool, seconds: int, profiles: dict[str, str], home: Path
) -> list[dict[str, Any]]:
    laps = [
        Lap(
            name,
            "promised",
            [(0.0, hz)],
            seconds,
            bound_s=bound_s,
            profile=profiles[name],
            forced=forced,
            trial_s=0.0 if forced else 1.0,
        )
        for name, hz, bound_s, _ in mix
    ]
    rows: list[dict[str, Any]] = []
    with started(laps, home) as processes:
        admitted = []
        for each in processes:
            refused = each.refused()
            if refused is None:
                admitted.append(each)
            else:  # by its trial, or since the others' trials took what the estimate had left for it
                rows.append({"flow": each.lap.flow, "refused": refused, "rate_hz": each.lap.promised_hz})
        with scan(_SCAN):
            for each in admitted:
                each.go()
            for each in admitted:
                found = each.result()
                reserved = found.get("promise", {}).get("reserved_cores")
                rows.append(
                    {**found, "rate_hz": each.lap.promised_hz, "bound_s": each.lap.bound_s, "reserved": reserved}
                )
    return rows


def _answer(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ran = [row for row in rows if "refused" not in row]
    admitted = [row for row in ran if not row["forced"]]
    forced = [row for row in ran if row["forced"]]
    ratios = [row["reserved"] / row["used_cores"] for row in admitted if row["reserved"] and row["used_cores"]]
    broken = [row for row in forced if row["kept"] < 0.99]
    return {
        "kept": _kept(admitted),
        "windows": sum(row["windows"] for row in admitted),
        "reserved_over_used": round(statistics.median(ratios), 3) if ratios else None,
        "reserved_over_used_range": [round(min(ratios), 3), round(max(ratios), 3)] if ratios else [],
        "refused": len(rows) - len(ran),
        "forced_kept": _kept(forced),
        "forced_broken": round(len(broken) / len(forced), 3) if forced else None,
    }


def _kept(rows: list[dict[str, Any]]) -> float | None:
    windows = sum(row["windows"] for row in rows)
    return round(sum(row["kept_windows"] for row in rows) / windows, 4) if windows else None


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    return [
        f"admission over {part['mixes']} mixes: {part['kept']} of {part['windows']} windows kept; reserved over used "
        f"{part['reserved_over_used']} {part['reserved_over_used_range']}; forced in: {part['forced_kept']} kept, "
        f"{part['forced_broken']} of the lanes broken",
    ]
