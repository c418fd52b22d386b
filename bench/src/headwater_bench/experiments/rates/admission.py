"""Is admission sound? Random mixes of flows, rates and latencies, beside SCAN: what is admitted must be kept.

Those that are refused are forced in, as protected as the others: if they want 1.3 times the cores that may be promised, most
must break. Some of those that were admitted run once more without a promise.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.estimate import cores, tick_of
from headwater.rate.grade import grade_here
from headwater.rate.ledger import LANE, Ledger
from headwater_bench.experiments.rates.lap import Lap, started
from headwater_bench.experiments.rates.scan import scan

_LATENCIES_S = (0.02, 0.05, 0.1)
_SCAN = 100
_TWICE = 5  #: every so many mixes one runs without a promise, too; another one of them is forced in
FORCED = 1.3
"""Times the cores that may be promised, from which on a mix that is forced in must break."""


def measure(quick: bool, profiles: dict[str, str], home: Path, *, seed: int = 14) -> dict[str, Any]:
    """Run so many mixes that most figures of the answer do not hang on one of them."""
    chance = random.Random(seed)
    loaded = {name: Profile.load(Path(path)) for name, path in profiles.items()}
    mixes = 3 if quick else 30
    rows: list[dict[str, Any]] = []
    for number in range(mixes):
        forced = number % _TWICE == _TWICE - 1 or (quick and number == mixes - 1)
        mix = _mix(chance, loaded, forced)
        systems = ("promised", "unprotected") if number % _TWICE == 0 else ("promised",)
        for system in systems:
            lanes = _run(mix, system, forced, 3, profiles, home)
            rows += [{"mix": number, "forced": forced, "wanted": round(sum(w for *_, w in mix), 3), **r} for r in lanes]
    return _answer(rows) | {"mixes": mixes, "cases": rows}


def _cores_for(profiles: dict[str, Profile], name: str, rate_hz: float, bound_s: float) -> float:
    demand = profiles[name].demand
    assert demand is not None
    return cores(demand, rate_hz, tick_of(Contract(rate_hz, bound_s)))


def _mix(chance: random.Random, profiles: dict[str, Profile], forced: bool) -> list[tuple[str, float, float, float]]:
    """Draw flows until what they want is near what may be promised or, to be forced in, well above it."""
    capacity = Ledger(grade_here().cores).capacity
    goal = capacity * (chance.uniform(FORCED, 1.6) if forced else chance.uniform(0.4, 0.95))
    mix: list[tuple[str, float, float, float]] = []
    total, misses = 0.0, 0
    while (forced and total < goal) or (not forced and misses < 5):
        name, bound_s = chance.choice(list(profiles)), chance.choice(_LATENCIES_S)
        rate_hz = float(chance.randrange(60 if forced else 5, 120 if forced else 60)) * 1000
        needed = _cores_for(profiles, name, rate_hz, bound_s)
        while needed > LANE:
            rate_hz *= 0.8
            needed = _cores_for(profiles, name, rate_hz, bound_s)
        if not forced and total + needed > goal:
            misses += 1
            continue
        mix.append((name, rate_hz, bound_s, needed))
        total += needed
    return mix


def _run(
    mix: list[tuple[str, float, float, float]],
    system: str,
    forced: bool,
    seconds: int,
    profiles: dict[str, str],
    home: Path,
) -> list[dict[str, Any]]:
    laps = [
        Lap(name, system, [(0.0, hz)], seconds, bound_s=bound_s, profile=profiles[name], forced=forced)
        for name, hz, bound_s, _ in mix
    ]
    rows: list[dict[str, Any]] = []
    with started(laps, home) as processes:
        admitted = []
        for each in processes:
            reason = each.refused()
            if reason is None:
                admitted.append(each)
            else:  # by its trial, or since the others' trials took what the estimate had left for it
                rows.append({"flow": each.lap.flow, "refused": reason, "rate_hz": each.lap.promised_hz})
        with scan(_SCAN):
            for each in admitted:
                each.go()
            for each in admitted:
                result = each.result()
                reserved = result.get("promise", {}).get("reserved_cores")
                rows.append(
                    {**result, "rate_hz": each.lap.promised_hz, "bound_s": each.lap.bound_s, "reserved": reserved}
                )
    return rows


def _answer(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ran = [row for row in rows if "refused" not in row]
    without = [row for row in ran if row["system"] == "unprotected"]
    admitted = [row for row in ran if not row["forced"] and row not in without]
    forced = [row for row in ran if row["forced"]]
    ratios = [row["reserved"] / row["used_cores"] for row in admitted if row["reserved"] and row["used_cores"]]
    broken = [row for row in forced if row["kept"] < 0.99]
    mixes = {row["mix"] for row in forced}
    return {
        "kept": _share_kept(admitted),
        "windows": sum(row["windows"] for row in admitted),
        "reserved_over_used": round(statistics.median(ratios), 3) if ratios else None,
        "reserved_over_used_range": [round(min(ratios), 3), round(max(ratios), 3)] if ratios else [],
        "refused": len(rows) - len(ran),
        "unprotected_kept": _share_kept(without),
        "forced_kept": _share_kept(forced),
        "forced_broken": round(len(broken) / len(forced), 3) if forced else None,
        "forced_mixes_broken": [len({row["mix"] for row in broken}), len(mixes)],
    }


def _share_kept(rows: list[dict[str, Any]]) -> float | None:
    windows = sum(row["windows"] for row in rows)
    return round(sum(row["kept_windows"] for row in rows) / windows, 4) if windows else None


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    return [
        f"admission over {part['mixes']} mixes: {part['kept']} of {part['windows']} windows kept; reserved over used "
        f"{part['reserved_over_used']} {part['reserved_over_used_range']}; every {_TWICE}th once more without a promise: "
        f"{part['unprotected_kept']} kept; forced in: {part['forced_kept']} kept, {part['forced_broken']} of the lanes "
        f"broken, in {' of '.join(map(str, part['forced_mixes_broken']))} mixes",
    ]
