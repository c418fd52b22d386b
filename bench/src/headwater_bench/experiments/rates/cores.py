"""Figures 8 and 9a beyond this machine: how much 4 to 80 cores, and several machines, can promise, in the simulator.

Its parameters are the profiles that were measured here. What one machine shows for real is two lanes against one.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand, Profile
from headwater.rate.estimate import nearest
from headwater.rate.ledger import LANE, Ledger
from headwater.sim.promises import Offer, play
from headwater_bench.experiments.rates import two
from headwater_bench.experiments.rates.lap import BOUND_S
from headwater_bench.experiments.rates.profiles import of_full_lane
from headwater_bench.experiments.rows import text_table

CORES = (4, 8, 16, 32, 80)
MACHINES = (1, 2, 4)
MACHINE_CORES = 4

PAPER = "figure 8: Storm-RTS almost linear from 4 to 16 cores; figure 9a: it grows with machines"
_MOST_HZ = 1e7
_KEYS = 10_000  #: sensors, over which a flow is spread


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Fill machines with as many lanes as are admitted, each at the highest rate that one may have, beside a busy SCAN."""
    rows: list[dict[str, Any]] = []
    for name, path in profiles.items():
        for cores in CORES:
            rows.append(
                {"flow": name, "cores": cores, **_filled(Profile.load(Path(path)), name, cores, 3 if quick else 10)}
            )
    machines = _machines({name: Profile.load(Path(path)) for name, path in profiles.items()}, 3 if quick else 10)
    by_cores = {cores: _mean([_over_four(rows, row) for row in rows if row["cores"] == cores]) for cores in CORES}
    return {
        "throughput_over_4_cores": {str(cores): value for cores, value in by_cores.items()},
        "throughput_by_machines": machines["throughput"],
        "p99_ms_by_machines": machines["p99_ms"],
        "kept": round(min(row["kept"] for row in rows), 4),
        "two_lanes_over_one": _two_lanes(quick, profiles, home),
        "paper": PAPER,
        "cases": rows,
        "machine_cases": machines["cases"],
    }


def _filled(profile: Profile, name: str, cores: int, seconds: int) -> dict[str, Any]:
    demand = profile.demand
    assert demand is not None
    capacity = Ledger(cores).capacity
    whole = int(capacity / LANE)
    # the last lane gets what is left, lest figures show by how much lanes happen to miss a number of cores
    rooms = [LANE] * whole + [capacity - whole * LANE]
    rates = [nearest(demand, Contract(_MOST_HZ, BOUND_S), 0.999 * room).rate_hz for room in rooms]
    offers = [Offer(name, Contract(rate_hz, BOUND_S), demand) for rate_hz in rates if rate_hz is not None]
    played = play(offers, cores=cores, seconds=seconds, competitors=cores)
    if any(each.refused for each in played):
        raise AssertionError(f"{name} on {cores} cores: the simulator refuses what should fit: {played}")
    return {
        "lanes": len(played),
        "rate_hz": round(sum(offer.rate_hz * each.done for offer, each in zip(offers, played, strict=True))),
        "kept": sum(each.kept for each in played) / sum(each.windows for each in played),
        "p99_ms": round(1e3 * max(each.p99_s for each in played), 2),
    }


def _machines(profiles: dict[str, Profile], seconds: int) -> dict[str, Any]:
    """Let every flow have as high a rate as machines can promise together, its keys spread over all their lanes by hash.

    Some lane has more keys than others, and what that one can do bounds them all: so much is lost the more lanes there are.
    """
    rows: list[dict[str, Any]] = []
    for name, profile in profiles.items():
        demand = profile.demand
        assert demand is not None
        lane_hz = nearest(demand, Contract(_MOST_HZ, BOUND_S), 0.999 * LANE).rate_hz
        assert lane_hz is not None
        each = int(Ledger(MACHINE_CORES).capacity / LANE)  # lanes of a machine
        for machines in MACHINES:
            shares = _shares(machines * each)
            rates = [lane_hz * share / max(shares) for share in shares]
            played = [_played(name, demand, rates[at::machines], seconds) for at in range(machines)]
            done_hz = sum(hz for hz, _ in played)
            p99_ms = max(p99_s for _, p99_s in played) * 1e3
            rows.append({"flow": name, "machines": machines, "rate_hz": round(done_hz), "p99_ms": round(p99_ms, 2)})
    one = {row["flow"]: row["rate_hz"] for row in rows if row["machines"] == 1}
    over_one = {m: [r["rate_hz"] / one[r["flow"]] for r in rows if r["machines"] == m] for m in MACHINES}
    return {
        "throughput": {str(machines): _mean(ratios) for machines, ratios in over_one.items()},
        "p99_ms": {str(m): max(row["p99_ms"] for row in rows if row["machines"] == m) for m in MACHINES},
        "cases": rows,
    }


def _played(name: str, demand: Demand, rates: list[float], seconds: int) -> tuple[float, float]:
    """Return what one machine has done of these rates, and the longest that a record took, but for one in a hundred."""
    offers = [Offer(name, Contract(rate_hz, BOUND_S), demand) for rate_hz in rates]
    played = play(offers, cores=MACHINE_CORES, seconds=seconds, competitors=MACHINE_CORES)
    if any(each.refused for each in played):
        raise AssertionError(f"{name}: the simulator refuses what should fit: {played}")
    done_hz = sum(offer.rate_hz * each.done for offer, each in zip(offers, played, strict=True))
    return done_hz, max(each.p99_s for each in played)


def _shares(lanes: int) -> list[float]:
    """Return the share of all keys that each lane has, where they are spread by hash."""
    keys = np.random.default_rng(9).integers(0, 2**63, _KEYS)
    return [count / _KEYS for count in np.bincount(keys % lanes, minlength=lanes).tolist()]


def _over_four(rows: list[dict[str, Any]], row: dict[str, Any]) -> float:
    four = next(each["rate_hz"] for each in rows if each["flow"] == row["flow"] and each["cores"] == CORES[0])
    return float(row["rate_hz"] / four)


def _mean(values: list[float]) -> float:
    return round(statistics.geometric_mean(values), 4)


def _two_lanes(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Run promised flows in one lane and in two for real."""
    full = {name: of_full_lane(name, path) for name, path in profiles.items()}
    return two.measure(list(profiles), *((2.0, 1) if quick else (4.0, 2)), full, home)


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    by_cores, by_machines = part["throughput_over_4_cores"], part["throughput_by_machines"]
    return [
        *text_table(("simulated cores", *by_cores), [("throughput over that of 4", *by_cores.values())]),
        *text_table(
            ("simulated machines of 4 cores", *by_machines), [("throughput over that of 1", *by_machines.values())]
        ),
        *(_for_real(flow, row) for flow, row in part["two_lanes_over_one"].items()),
        f"paper, {part['paper']}",
    ]


def _for_real(flow: str, row: dict[str, Any]) -> str:
    facts = []
    if "promised_over_one" in row:
        of = f"{row['two_promised_hz']:,} over {row['one_promised_hz']:,}"
        kept = (
            f"{row['two_kept_windows']} of {row['two_windows']} and {row['one_kept_windows']} of {row['one_windows']}"
        )
        facts.append(f"promised {row['promised_over_one']} ({of} messages/s; {kept} windows kept)")
    if "two_over_one" in row:
        facts.append(f"at most {row['two_over_one']} ({row['two_hz']:,} over {row['one_hz']:,})")
    if "failed" in row:
        facts.append(f"FAILED: {row['failed']}")
    return f"for real, {flow} in two lanes over one (goal {two.GOAL}): {', '.join(facts)}"
