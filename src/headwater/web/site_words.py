"""What a coordinator says of its flow and its sites, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from headwater.web.figures import milliseconds

_AT_REST = ("ended", "stopped")
_OVER = ("done", "came to nothing")
#: how the strip of a site looks, by the state of its part
_STRIP = {"running": "works", "ended": "idle", "no part": "idle", "stopped": "idle", "away": "held", "refused": "held"}


def strip_of(site: Mapping[str, Any]) -> str:
    """Return the kind of strip that says how a site fares."""
    return _STRIP.get(site["state"], "waiting")


def is_over(move: Mapping[str, Any]) -> bool:
    """Say whether a move is over."""
    return move["state"] in _OVER


def prices_of(document: Mapping[str, Any]) -> dict[str, float]:
    """Return what the net says that each of its sites costs an hour."""
    return {place["name"]: place["price"] for place in (document["net"] or {"sites": []})["sites"] if place["price"]}


def figures_of(site: Mapping[str, Any], prices: Mapping[str, float]) -> dict[str, str]:
    """Write what a site reports of itself; nothing where it says nothing, but for a price that the net has of it."""
    price, carbon, load = site.get("price"), site.get("carbon"), site.get("load")
    price = prices.get(site["name"]) if price is None else price
    ledger, own = site.get("promised") or {}, site.get("promise")
    return {
        "load": "" if load is None else f"{load:.1f} of {site['cores']:g} cores",
        "price": "" if price is None else f"{price:g} an hour",
        "carbon": "" if carbon is None else f"{carbon:g} g CO₂/kWh",
        "promised": f"{ledger['held']:.2f} of {ledger['capacity']:.2f}" if ledger.get("held") else "",
        "kept": "" if own is None else f"{own['kept']:,} of {own['kept'] + own['broken']:,}",
    }


def verdict(document: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Say how the flow fares at its sites, what would help, and whether that is grave."""
    flow, sites = document["flow"], document["sites"]
    if flow is None:
        advice = "headwater deploy PLAN with the same state folder hands each site its part."
        return _sentence(document.get("why") or "nothing is deployed"), advice, False
    if document.get("why"):
        return f"Flow {flow['name']} is {flow['phase']}: {document['why']}.", "", flow["phase"] not in _AT_REST
    running = [move for move in flow.get("moves", ()) if not is_over(move)]
    if running:
        move = running[-1]
        return f"Under way, {move['state']}: {steps_text(move['steps'])}.", f"Why: {move['why']}.", False
    away = [site["name"] for site in sites if site["steps"] and site["state"] == "away"]
    if away:
        advice = "The others go on; records for it wait at their bridges. Is its machine on, and its network?"
        return f"Away: {', '.join(away)}.", advice, True
    wrong = [site for site in sites if site["why"]]
    if wrong:
        return f"Site {wrong[0]['name']}: {wrong[0]['why']}.", "", True
    at = sum(bool(site["steps"]) for site in sites)
    reason = (flow.get("policy") or {}).get("waits", "")
    return f"Flow {flow['name']} is {flow['phase']} at {at} site{'s' * (at != 1)}.", reason, False


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def steps_text(steps: Mapping[str, Sequence[str]]) -> str:
    """Tell which steps go where.

    >>> steps_text({"a": ("barn", "cloud"), "b": ("barn", "cloud"), "c": ("barn", "office")})
    'a, b: barn → cloud; c: barn → office'
    """
    ways: dict[tuple[str, str], list[str]] = {}
    for step, (one, other) in steps.items():
        ways.setdefault((one, other), []).append(step)
    return "; ".join(f"{', '.join(names)}: {one} → {other}" for (one, other), names in ways.items())


def moves_of(flow: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return (id, cells) of each move, the last first; what a policy decided before the coordinator was started, too."""
    decisions = {each["id"]: each for each in (flow.get("policy") or {}).get("decisions", ())}
    moves = {move["id"]: move for move in flow.get("moves", ())}
    older = [_decision_row(each, flow) for id, each in decisions.items() if id not in moves]
    rows = [*older, *(_move_row(move, decisions.get(move["id"])) for move in moves.values())]
    return rows[::-1]


def _move_row(move: Mapping[str, Any], decision: Mapping[str, Any] | None) -> tuple[str, list[str]]:
    gap = "" if move["gap_s"] is None else milliseconds(1000 * move["gap_s"])
    state = f"{move['state']}: {move['undone']}" if move["undone"] else str(move["state"])
    expectation = "" if decision is None else _expectation(decision)
    return move["id"], [
        _clock(move["at_s"]),
        move["by"],
        steps_text(move["steps"]),
        move["why"],
        state,
        gap,
        expectation,
    ]


def _decision_row(decision: Mapping[str, Any], flow: Mapping[str, Any]) -> tuple[str, list[str]]:
    outcome = decision["came"] or {}
    gap = "" if outcome.get("gap_s") is None else milliseconds(1000 * outcome["gap_s"])
    state = f"came to nothing: {outcome['undone']}" if outcome.get("undone") else "done" if outcome else ""
    by, steps = flow["policy"]["name"], steps_text(decision["moves"])
    return decision["id"], [_clock(decision["at_s"]), by, steps, decision["why"], state, gap, _expectation(decision)]


def _expectation(decision: Mapping[str, Any]) -> str:
    """Tell what was expected of a decision, and what came."""
    measures = (decision["came"] or {}).get("measures", {})
    parts = []
    for name, (was, should) in decision["expects"].items():
        then = f", came {_figure(measures[name])}" if name in measures else ""
        parts.append(f"{name} {_figure(was)} → {_figure(should)}{then}")
    for name, (was, now) in decision.get("measured", {}).items():
        if now is not None:
            parts.append(f"{name} measured {'unknown' if was is None else _figure(was)} → {_figure(now)}")
    return "; ".join(parts)


def _figure(value: float | None) -> str:
    return "not possible" if value is None else f"{value:.4g}"


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).strftime("%H:%M:%S")
