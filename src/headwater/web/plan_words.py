"""What the account of a placement says, in words and rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.web.figures import milliseconds, percent, size

#: what is minimised, as people call it → as an objective is written
OBJECTIVES = {
    "critical then devices": "Fastest on the slowest path",
    "money then critical": "Cheapest",
    "energy then critical": "Least of any battery",
    "wan then critical": "Least between sites",
    "devices then critical": "Fewest devices",
}
#: each measure, as it is called on the page
MEASURES = {
    "critical": "slowest path",
    "aggregate": "all paths",
    "wan": "between sites",
    "energy": "of a battery",
    "money": "money",
    "devices": "devices",
}


def figure(measure: str, value: float | None) -> str:
    """Write what a placement has of a measure.

    >>> figure("critical", 0.0125), figure("money", 0.4), figure("wan", 2048), figure("critical", None)
    ('12.5 ms', '0.4 an hour', '2 KiB/s', 'no end')
    """
    if value is None:
        return "no end"
    match measure:
        case "critical" | "aggregate":
            return milliseconds(1000 * value)
        case "wan":
            return f"{size(value)}/s"
        case "energy":
            return percent(value)
        case "money":
            return f"{value:.4g} an hour"
    return f"{value:g}"


def row_of(name: str, document: Mapping[str, Any]) -> list[str]:
    """Return the cells of a placement, beside others."""
    measures = document.get("measures")
    cells = ["" if measures is None else figure(each, measures[each]) for each in MEASURES]
    status = "proven best" if document["proven"] and document["status"] == "optimal" else document["status"]
    return [name, "breaks a limit" if document["broken"] else status, *cells]


def verdict(name: str, document: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[str, str, bool]:
    """Say what a placement is worth, how it differs from the one before, and whether it cannot be."""
    if document["broken"]:
        more = f" (and {len(document['broken']) - 1} more)" if len(document["broken"]) > 1 else ""
        advice = "Move a step back, or plan anew: the search keeps every limit."
        return f"{name} cannot be: {document['broken'][0]}{more}.", advice, True
    measures = document["measures"]
    binding = [f"{row['kind']} of {row['device']}" for row in document["binding"] if row["binds"]]
    limits = f" What binds: {', '.join(binding)}." if binding else ""
    summary = (
        f"{name}: {figure('critical', measures['critical'])} on the slowest path, {figure('money', measures['money'])}, "
        f"{measures['devices']} device{'s' * (measures['devices'] != 1)}.{limits}"
    )
    return summary, changes(before, document), False


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Tell which measures differ from those of the placement before, and which steps moved."""
    if before is None or before is after or before.get("measures") is None:
        return ""
    old_places, places = before["placement"], after["placement"]
    moves = [
        f"{step}: {old_places[step]} → {places[step]}"
        for step in places
        if old_places.get(step, places[step]) != places[step]
    ]
    old, new = before["measures"], after["measures"]
    differences = [
        f"{MEASURES[each]} {figure(each, old[each])} → {figure(each, new[each])}"
        for each in MEASURES
        if old[each] != new[each]
    ]
    if not moves and not differences:
        return ""
    return f"{'; '.join(moves)}. {', '.join(differences) or 'No measure changes'}."


def reasons_of(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (step, cells) of why each step is where it is."""
    goal = document["objective"].partition(" then ")[0]
    measure = goal if goal in MEASURES else ""
    return [(row["step"], [row["step"], row["device"], *_reason(row, measure)]) for row in document["why"]]


def _reason(row: Mapping[str, Any], measure: str) -> list[str]:
    if row["pinned"]:
        return ["it is pinned there", ""]
    best = row["next_best"]
    if best is None:
        alternative = f"none of {row['tried']} other devices is allowed" if row["tried"] else "there is no other device"
    elif best["worse_by"] > 0:
        alternative = f"{best['device']}, worse by {_amount(measure, best['worse_by'])}"
    else:
        alternative = f"{best['device']} would do as well"
    forbidden = "; ".join(
        f"{each['device']} would be better by {_amount(measure, -each['worse_by'])}, but {each['because']}"
        for each in row["forbidden"]
    )
    return [alternative, forbidden]


def _amount(measure: str, value: float) -> str:
    return figure(measure, value) if measure else f"{value:.4g}"


def binding_of(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (kind, cells) of the fullest device of each limit."""
    return [
        (
            row["kind"],
            [row["kind"], row["device"], percent(row["share"]), "it binds" if row["binds"] else "there is room"],
        )
        for row in document["binding"]
    ]


def links_of(document: Mapping[str, Any]) -> list[tuple[int, list[str]]]:
    """Return (number, cells) of each stream between devices."""
    return [
        (
            number,
            [
                link["stream"],
                f"{link['from']} → {link['to']}",
                f"{size(link['bps'] / 8)}/s",
                percent(link["share"]),
                milliseconds(1000 * link["latency_s"]),
            ],
        )
        for number, link in enumerate(document["links"])
    ]


def rehearsal_of(report: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (sink, cells) of a rehearsal: what was predicted of each sink, and what came."""
    return [
        (sink, [sink, figure("critical", row["predicted_s"]), figure("critical", row["simulated_s"])])
        for sink, row in report.get("sinks", {}).items()
    ]
