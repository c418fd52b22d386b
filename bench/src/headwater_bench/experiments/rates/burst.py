"""Figure 11: PRED at 35,000/s, twice that for a while, and back; promised the peak, or scaled when it is seen.

Those that adapt are shown twice. Alone on the machine they have all cores from the beginning, and need not scale for a rate
that these can take; in containers, as in the paper's cluster, they have what the first rate needs, and must ask for more. A
burst lasts for several of their intervals, also in a hurry. Each is tried with several settings, and shown with the best.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.rate import cgroups
from headwater_bench.experiments.rates.isolation import SETTINGS
from headwater_bench.experiments.rates.lap import Lap, RefusedError, together
from headwater_bench.experiments.rows import text_table

BASE_HZ = 35_000.0
PAPER = "figure 11: Storm-RTS shows no dent; Dhalion and Storm-Serverless are dented for 10 to 20 s"
SYSTEMS = ("promised", "dhalion", "dhalion in containers", "serverless", "serverless in containers")
_CONTAINERS = "in containers"
_INTERVALS_S = (1.0, 5.0)  #: after which Dhalion looks again
_WARM_S = 4.0  #: for which the burst waits until all is warm
_SMALLER = (1.0, 0.75, 0.5, 0.25)  #: of the paper's rates: the largest that this machine can promise


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Let the rate double under each system, one after the other."""
    before, length, after = (2, 10, 3) if quick else (5, 30, 5)
    answer: dict[str, Any] = {"paper": PAPER}
    share = 1.0
    for system in SYSTEMS:
        if _CONTAINERS in system and cgroups.find() is None:
            answer["skipped"] = "no group of the processor can be made here, so nothing bounds a container"
            continue
        for smaller in _SMALLER if system == "promised" else (share,):
            base_hz = BASE_HZ * smaller
            rates = [(0.0, base_hz), (_WARM_S + before, 2 * base_hz), (_WARM_S + before + length, base_hz)]
            tried = [
                Lap(
                    "pred",
                    system.partition(" ")[0],
                    rates,
                    before + length + after,
                    warm_s=_WARM_S,
                    promise_hz=2 * base_hz,
                    profile=profiles["pred"],
                    settings=settings,
                )
                for settings in _settings(system, quick)
            ]
            try:
                found = [_dent(together([lap], home)[0]) for lap in tried]
            except RefusedError as refused:
                answer["refused"] = str(refused)
                continue
            share = smaller
            answer[system.replace(" ", "_")] = max(found, key=lambda each: (each["kept"], each["rate_kept"]))
            break
    answer["base_hz"] = BASE_HZ * share
    return answer


def _settings(system: str, quick: bool) -> list[dict[str, float | str]]:
    """Return the settings that a system is tried with; in a hurry, those that it reacts soonest with."""
    tried: list[dict[str, float | str]] = [{}]
    if system.startswith("dhalion"):
        tried = [{"interval_s": interval_s} for interval_s in _INTERVALS_S]
    elif system.startswith("serverless"):
        tried = list(SETTINGS["serverless"])
    if _CONTAINERS in system:
        tried = [{**each, "containers": 1.0} for each in tried]
    return tried[:1] if quick else tried


def _dent(found: dict[str, Any]) -> dict[str, Any]:
    """Return what of a lap shows the dent: seconds in which less came than was due, and how late."""
    dented = [
        at for at, (came, due) in enumerate(zip(found["arrived"], found["due"], strict=True)) if came < 0.95 * due
    ]
    keys = (
        "kept",
        "windows",
        "rate_kept",
        "p99_ms",
        "arrived",
        "due",
        "worst_ms",
        "used_cores",
        "scaled",
        "container_cores",
        "cold_starts",
        "settings",
    )
    return {key: found[key] for key in keys if key in found} | {"dented_s": len(dented)}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    systems = {name: row for name, row in part.items() if isinstance(row, dict)}
    rows = [
        (
            name,
            row["kept"],
            row["windows"],
            row["dented_s"],
            row["p99_ms"],
            max(row["worst_ms"]),
            len(row.get("scaled", ())) or row.get("cold_starts") or "-",
        )
        for name, row in systems.items()
    ]
    what = f"burst, {part['base_hz']:,.0f}/s doubled"
    head = (what, "kept", "of windows", "dented s", "p99 ms", "worst ms", "times scaled")
    more = [part["skipped"]] if "skipped" in part else []
    return [*text_table(head, rows), *more, f"paper, {part['paper']}"]
