"""Two placements side by side: what a change of the net, of rates or of devices does to a flow."""

from __future__ import annotations

from typing import Any

from headwater.net.arrays import Ints
from headwater.place.account import account
from headwater.place.placement import Placement
from headwater.place.verify import violations


def compare(before: Placement, after: Placement, *, alternatives: bool = True) -> dict[str, Any]:
    """Both accounts, what each measure gains, and which steps run elsewhere; by name, since the nets may differ."""
    accounts = {"before": account(before, alternatives=False), "after": account(after, alternatives=alternatives)}
    there, here = before.by_name, after.by_name
    measures = {}
    for name in accounts["after"].get("measures", {}):
        was, now = (accounts[side].get("measures", {}).get(name) for side in ("before", "after"))
        measures[name] = {"before": was, "after": now}
    gained = before.value - after.value if before.device is not None and after.device is not None else None
    return {
        **accounts,
        "measures": measures,
        "better_by": gained,
        "moved": [
            {"step": step, "from": there[step], "to": here[step]}
            for step in here
            if step in there and there[step] != here[step]
        ],
    }


def repair_account(before: Ints, after: Placement) -> dict[str, Any]:
    """What a repair moved, what that carries, and what is broken about the old placement today."""
    problem, moves = after.problem, []
    broken = [str(violation) for violation in violations(problem, before.tolist())]
    if after.device is not None:
        for i in (after.device != before).nonzero()[0].tolist():
            moves.append(
                {
                    "step": problem.steps[i],
                    "from": problem.net.device_name(int(before[i])),
                    "to": problem.net.device_name(int(after.device[i])),
                    "state_bytes": float(problem.memory_bytes[i]),
                }
            )
    return {"broken": broken, "moves": moves, "state_bytes_moved": sum(move["state_bytes"] for move in moves)}


def render_comparison(document: dict[str, Any]) -> list[str]:
    """Before and after as a table."""
    before, after = document["before"], document["after"]
    lines = [f"{'':<12} {'before':>14} {'after':>14}"]
    lines.append(f"{'status':<12} {before['status']:>14} {after['status']:>14}")
    for name, row in document["measures"].items():
        cells = ["-" if row[side] is None else f"{row[side]:.6g}" for side in ("before", "after")]
        lines.append(f"{name:<12} {cells[0]:>14} {cells[1]:>14}")
    if not document["moved"]:
        lines.append("no step runs elsewhere")
    return lines + [f"  {move['step']}: {move['from']} → {move['to']}" for move in document["moved"]]


def render_repair(document: dict[str, Any]) -> list[str]:
    """What a repair moved, and why."""
    lines = [f"the old placement: {text}" for text in document["broken"]] or ["the old placement still holds"]
    if document["moves"]:
        lines.append(f"moves {len(document['moves'])}, with {document['state_bytes_moved'] / 1e6:.3g} MB of state:")
        lines += [f"  {move['step']}: {move['from']} → {move['to']}" for move in document["moves"]]
    return lines
