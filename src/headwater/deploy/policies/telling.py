"""Decisions in words: why, what moves, with what hope, and what came of it."""

from __future__ import annotations

from headwater.deploy.policies.policy_state import Decision


def told(decision: Decision) -> str:
    """Tell a decision, why and with what hope."""
    moved: dict[tuple[str, str], list[str]] = {}
    for step, way in decision.moves.items():
        moved.setdefault(way, []).append(step)
    steps = "; ".join(f"{', '.join(names)}: {a} → {b}" for (a, b), names in moved.items())
    hopes = ", ".join(f"{name} {_figure(was)} → {_figure(now)}" for name, (was, now) in decision.expects.items())
    return f"{decision.why}: {steps} (expected: {hopes})"


def told_came(decision: Decision) -> str:
    """Tell what came of a decision."""
    came = decision.came or {}
    if came.get("undone"):
        return f"the move came to nothing: {came['undone']}"
    figures = ", ".join(f"{name} {_figure(value)}" for name, value in came.get("measures", {}).items())
    gap = "" if came.get("gap_s") is None else f"all parts were at work again after {came['gap_s']:.2f} s; "
    return f"moved; {gap}by the plan {figures} now"


def told_measured(decision: Decision) -> str:
    """Tell what was measured before and after a decision; nothing before it is known."""
    if all(after is None for _, after in decision.measured.values()):
        return ""
    pairs = ", ".join(
        f"{name} {_measurement(was)} → {_measurement(now)}" for name, (was, now) in decision.measured.items()
    )
    return f"measured: {pairs}"


def _measurement(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _figure(value: float | None) -> str:
    return "not possible" if value is None else f"{value:.4g}"
