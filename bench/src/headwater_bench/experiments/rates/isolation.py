"""Figure 10b: three flows at their rates beside SCAN, which wants more and more of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater_bench.experiments.rates.lap import SYSTEMS, Lap, started
from headwater_bench.experiments.rates.scan import scan
from headwater_bench.experiments.rows import text_table

MIX = {"etl": 20_000.0, "stats": 10_000.0, "pred": 30_000.0}
LEVELS = (0, 50, 100, 200, 400, 800)
"""How much of the machine SCAN wants, in percent."""

WINDOWS = 300
"""How many windows of promised flows are judged at each level, all three together, unless in a hurry."""

PAPER = "figure 10b: Storm-RTS stays at 1.0 from 0 to 100 %; Storm, EdgeWise, Dhalion and Storm-Serverless fall"
SETTINGS: dict[str, list[dict[str, float | str]]] = {
    "dhalion": [
        {"interval_s": 2.0, "on": "engine"},
        {"interval_s": 5.0, "on": "engine"},
        {"interval_s": 5.0, "on": "threads"},
    ],
    "serverless": [{"alert_s": 0.1, "interval_s": 1.0}, {"alert_s": 0.5, "interval_s": 2.0}],
}
"""What suits a system was not known beforehand: each is tried, and the best is shown."""

ADAPTS_S = 12
"""Seconds of a lap of a system that adapts: two of its longest intervals, and some more to gain by what it did. The others,
which have nothing to adapt, are judged as long unless in a hurry."""


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Run every system at every level, the promised flows longest."""
    levels = (0, 400) if quick else LEVELS
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for system in SYSTEMS:
        seconds = _seconds(system, quick)
        tried = SETTINGS.get(system, [{}])[: 1 if quick else None]
        for settings in _suited(system, tried, profiles, home):
            for level in levels if system == "promised" or not quick else levels[-1:]:
                try:
                    results = _level(system, level, seconds, profiles, home, settings)
                except AssertionError as error:
                    if system == "promised":
                        raise
                    failed.append(
                        f"{system} at {level} %: {error}"
                    )  # one of the others that breaks is no figure of ours
                else:
                    rows += [{"level": level, **row} for row in results]
    ran = [system for system in SYSTEMS if any(row["system"] == system for row in rows)]
    return {**{system: _summary(system, rows) for system in ran}, "failed": failed, "paper": PAPER, "cases": rows}


def _seconds(system: str, quick: bool) -> int:
    """Return how long a system is judged at each level: one that adapts is given the time for that, also in a hurry."""
    if system == "promised":
        return 5 if quick else WINDOWS // len(MIX)
    if system in SETTINGS:
        return ADAPTS_S
    return 2 if quick else ADAPTS_S


def _suited(
    system: str, tried: Sequence[dict[str, float | str]], profiles: dict[str, str], home: Path
) -> list[dict[str, float | str]]:
    """Return the settings under which a system does best at a middling level; where there is one choice, that."""
    if len(tried) == 1:
        return list(tried)
    scores = [sum(row["rate_kept"] for row in _level(system, 100, ADAPTS_S, profiles, home, each)) for each in tried]
    return [tried[scores.index(max(scores))]]


def _level(
    system: str, level: float, seconds: int, profiles: dict[str, str], home: Path, settings: dict[str, float | str]
) -> list[dict[str, Any]]:
    laps = [
        Lap(name, system, [(0.0, hz)], seconds, profile=profiles.get(name), settings=settings)
        for name, hz in MIX.items()
    ]
    with started(laps, home) as processes:
        for each in processes:
            each.ready()  # before SCAN begins: nobody is measured by how it starts
        with scan(level):
            for each in processes:
                each.go()
            return [each.result() for each in processes]


def _summary(system: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [row for row in rows if row["system"] == system]
    levels = sorted({row["level"] for row in mine})
    by_level = {level: [row for row in mine if row["level"] == level] for level in levels}
    windows = sum(row["windows"] for row in mine)
    return {
        "kept": round(sum(row["kept_windows"] for row in mine) / windows, 4),
        "windows": windows,
        "rate_kept": round(min(row["rate_kept"] for row in mine), 4),
        "p99_ms": max(row["p99_ms"] for row in mine),
        "used_cores": round(sum(row["used_cores"] for row in mine) / len(levels), 3),
        "levels": levels,
        "windows_by_level": [sum(row["windows"] for row in at) for at in by_level.values()],
        "kept_by_level": [
            round(sum(row["kept_windows"] for row in at) / sum(row["windows"] for row in at), 4)
            for at in by_level.values()
        ],
        "rate_kept_by_level": [round(sum(row["rate_kept"] for row in at) / len(at), 4) for at in by_level.values()],
        "p99_ms_by_level": [max(row["p99_ms"] for row in at) for at in by_level.values()],
        "settings": mine[0].get("settings", {}),
    }


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    head = ("beside SCAN", "kept", "of windows", "rate kept, worst", "p99 ms, worst", "cores used, all three")
    rows = [
        (name, row["kept"], row["windows"], row["rate_kept"], row["p99_ms"], row["used_cores"])
        for name, row in _systems(part).items()
    ]
    return [*text_table(head, rows), "", *_by_level(part), f"paper, {part['paper']}", *part["failed"]]


def _systems(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: row for name, row in part.items() if isinstance(row, dict)}


def _by_level(part: dict[str, Any]) -> list[str]:
    """Return how promises fared beside each level of SCAN, and how many windows the others kept there."""
    promised = part.get("promised")
    if promised is None:
        return []
    levels = promised["levels"]
    keys = {"windows": "windows_by_level", "kept": "kept_by_level", "rate kept": "rate_kept_by_level"}
    keys["p99 ms, worst"] = "p99_ms_by_level"
    rows = [(name, *promised[key]) for name, key in keys.items()]
    for system, other in _systems(part).items():
        if system != "promised":
            shares = dict(zip(other["levels"], other["kept_by_level"], strict=True))
            rows.append((f"{system}, kept", *(shares.get(level, "-") for level in levels)))
    return text_table(("promised, SCAN wants", *(f"{level} %" for level in levels)), rows)
