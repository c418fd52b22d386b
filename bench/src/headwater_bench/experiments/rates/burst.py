"""Figure 11: PRED at 35,000/s, twice that for a while, and back; promised the peak, or scaled when it is seen.

And once more at this machine's own scale, of which the paper's rates are a small part: the peak is nearly the most that one
lane may be promised. Those that adapt are shown twice. Alone on the machine they have all cores from the beginning, and need
not scale for a rate that these can take; in containers, as in the paper's cluster, they have what the first rate needs, and
must ask for more. Who cannot do even the first rate with the whole machine is shown at the largest part of it that it can. A
burst lasts for several of their intervals, also in a hurry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headwater.flow.profile import Profile
from headwater.rate import cgroups
from headwater_bench.experiments.rates.lap import Lap, RefusedError, together
from headwater_bench.experiments.rates.two import promisable_hz
from headwater_bench.experiments.rows import text_table

BASE_HZ = 35_000.0
AT_SCALE = "at_scale"
PAPER = "figure 11: Storm-RTS shows no dent; Dhalion and Storm-Serverless are dented for 10 to 20 s"
SYSTEMS: dict[str, dict[str, float | str]] = {
    "promised": {},
    "dhalion": {"interval_s": 1.0},
    "dhalion in containers": {"interval_s": 1.0, "containers": 1.0},
    "serverless": {"alert_s": 0.1, "interval_s": 1.0},
    "serverless in containers": {"alert_s": 0.1, "interval_s": 1.0, "containers": 1.0},
}
"""Each with the settings that it reacts soonest with: with those that it reacts later with, all that were dented were so for
longer, here and at both scales."""

_CONTAINERS = " in containers"
_BEFORE_S, _AFTER_S = 2, 2  #: that are judged at the first rate
_WARM_S = 3.5  #: until all is warm, and containers have their size
_SMALLER = (1.0, 0.5, 0.25, 0.125)  #: of the rates: the largest that a system can have
_PEAK = 0.9  #: of what one lane may be promised by the estimate: a trial may find it dearer
_ENOUGH = 0.97  #: of the first rate that comes out where a system can do it
_DENTED = 0.95  #: of what is due in a second: less that comes is a dent


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Let the paper's rate double under each system, one after the other, and then one that fills a lane when doubled."""
    demand = Profile.load(Path(profiles["pred"])).demand
    assert demand is not None
    answer = _doubled(BASE_HZ, quick, profiles, home)
    answer[AT_SCALE] = _doubled(_PEAK * promisable_hz(demand, 1) / 2, quick, profiles, home)
    return answer


def _doubled(base_hz: float, quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    answer: dict[str, Any] = {"paper": PAPER, "base_hz": base_hz}
    for system, settings in SYSTEMS.items():
        alone = answer.get(system.removesuffix(_CONTAINERS))
        if alone is not None and alone["dented_s"]:
            continue  # who is dented with all cores need not show that with fewer
        if alone is not None and cgroups.find() is None:
            answer["skipped"] = "no group of the processor can be made here, so nothing bounds a container"
            continue
        tried = _SMALLER if alone is None else (alone["base_hz"] / base_hz,)
        for lap in (_lap(system, settings, smaller * base_hz, quick, profiles["pred"]) for smaller in tried):
            try:
                if settings and alone is None and not _bears(lap, home):
                    continue
                dent = _dent(together([lap], home)[0])
            except RefusedError as error:
                answer["refused"] = str(error)
                continue
            answer[system.replace(" ", "_")] = dent | {"base_hz": lap.rates[0][1]}
            break
        if system == "promised" and "promised" in answer:
            base_hz = answer["base_hz"] = answer["promised"]["base_hz"]
    return answer


def _lap(system: str, settings: dict[str, float | str], hz: float, quick: bool, profile: str) -> Lap:
    length_s = 10 if quick else 30
    begins_s = _WARM_S + _BEFORE_S
    return Lap(
        "pred",
        system.removesuffix(_CONTAINERS),
        [(0.0, hz), (begins_s, 2 * hz), (begins_s + length_s, hz)],
        _BEFORE_S + length_s + _AFTER_S,
        warm_s=_WARM_S,
        promise_hz=2 * hz,
        profile=profile,
        settings=settings,
    )


def _bears(lap: Lap, home: Path) -> bool:
    """Say whether a system can do the first rate, for some seconds."""
    result = together([msgspec.structs.replace(lap, rates=lap.rates[:1], seconds=2, warm_s=1.0)], home)[0]
    return bool(sum(result["arrived"]) > _ENOUGH * sum(result["due"]))


def _dent(result: dict[str, Any]) -> dict[str, Any]:
    """Return what of a lap shows the dent: seconds in which less came than was due, and how late."""
    dented = [came < _DENTED * due for came, due in zip(result["arrived"], result["due"], strict=True)]
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
    return {key: result[key] for key in keys if key in result} | {"dented_s": sum(dented)}


def systems(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the systems of which one of both bursts tells."""
    return {name: row for name, row in part.items() if isinstance(row, dict) and name != AT_SCALE}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    more = [part["skipped"]] if "skipped" in part else []
    tables = [line for each in (part, part.get(AT_SCALE)) if each for line in _table(each)]
    return [*tables, *more, f"paper, {part['paper']}"]


def _table(part: dict[str, Any]) -> list[str]:
    rows = [
        (
            name,
            f"{row['base_hz']:,.0f}",
            row["kept"],
            row["windows"],
            row["dented_s"],
            row["p99_ms"],
            max(row["worst_ms"]),
            row["used_cores"],
            len(row.get("scaled", ())) or row.get("cold_starts") or "-",
        )
        for name, row in systems(part).items()
    ]
    head = (
        "burst, doubled from",
        "/s",
        "kept",
        "of windows",
        "dented s",
        "p99 ms",
        "worst ms",
        "cores",
        "times scaled",
    )
    return text_table(head, rows)
