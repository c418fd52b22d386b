"""An account in words, for a terminal."""

from __future__ import annotations

from typing import Any


def render(account: dict[str, Any]) -> str:
    """Write an account as text."""
    lines = [_headline(account)]
    if account["status"] == "infeasible":
        return "\n".join([*lines, f"  {account['reason']}", *_relaxations(account)])
    lines.append("")
    lines += [f"  {step:<20} → {device}" for step, device in account["placement"].items()]
    lines += ["", "slowest path to each sink"]
    for path in account["paths"]:
        windows = f", {_seconds(path['in_windows_s'])} of it in windows and sources" if path["in_windows_s"] else ""
        lines.append(f"  {_seconds(path['latency_s']):>10}  {' → '.join(path['steps'])}{windows}")
    lines += ["", "devices"]
    for row in account["devices"]:
        battery = f", {row['hours_to_empty']:.1f} h to empty" if row.get("hours_to_empty") else ""
        lines.append(
            f"  {row['device']:<20} {row['class']:<14} {100 * row['utilisation']:5.1f} % busy, "
            f"{row['access_bps'] / 1e6:8.2f} Mbit/s{battery}: {', '.join(row['steps'])}"
        )
    lines += ["", *_binding(account), *_alternative(account)]
    return "\n".join(lines)


def _headline(account: dict[str, Any]) -> str:
    head = f"{account['problem']}: {account['status']} by {account['strategy']} in {account['seconds']:.3f} s"
    if account["value"] is None:
        return head + (" (proven)" if account["proven"] else " (not proven)")
    head += f"; {account['objective']} = {account['value']:.6g}"
    if account["status"] == "optimal":
        return head + ", proven"
    if account["bound"]:
        less = " of what no window takes" if account["movable"] < account["value"] else ""
        head += f", at most {100 * account['gap']:.2f} %{less} above the optimum"
    return head


def _binding(account: dict[str, Any]) -> list[str]:
    tight = [row for row in account["binding"] if row["binds"]]
    if tight:
        return [f"binds: {row['kind']} of {row['device']} at {100 * row['share']:.1f} %" for row in tight]
    if not account["binding"]:
        return []
    first = account["binding"][0]
    return [f"nothing binds; fullest is {first['kind']} of {first['device']} at {100 * first['share']:.1f} %"]


def _alternative(account: dict[str, Any]) -> list[str]:
    alternatives, lines = account.get("alternative", {}), []
    if "next_best" in alternatives:
        row = alternatives["next_best"]
        by = "" if row["worse_by"] is None else f", worse by {row['worse_by']:.3g}"
        lines.append(f"next best: {row['step']} on {row['device']}{by}")
    if "forbidden" in alternatives:
        row = alternatives["forbidden"]
        lines.append(f"better but forbidden: {row['step']} on {row['device']}: {row['because']}")
    return lines


def _relaxations(account: dict[str, Any]) -> list[str]:
    explanation = account.get("explanation")
    if not explanation:
        return []
    lines = []
    if explanation["steps"]:
        lines.append(f"  in conflict: {', '.join(explanation['steps'])}")
    return lines + [f"  it would fit with {text}" for text in explanation["relaxations"]]


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.3f} ms"
