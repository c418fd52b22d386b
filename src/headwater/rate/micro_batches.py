"""What can be promised of a runner that works in micro-batches, as Spark does: seconds, whatever comes at the rate."""

from __future__ import annotations

from headwater.flow.contract import Contract
from headwater.flow.duration import duration_text

SHORTEST_S = 1.0
"""The shortest latency that it can be promised."""


def why_not(contract: Contract) -> str:
    """Say why no application can be promised a contract, however many cores there are; nothing where one can."""
    if contract.latency_s is not None and contract.latency_s < SHORTEST_S:
        least = duration_text(round(SHORTEST_S * 1e6))
        return f"it works in micro-batches, and is promised {least} or more; the engine can promise milliseconds"
    if contract.above != "best effort":
        return (
            f"it reads its sources itself, and what is above the rate is best effort there, and not {contract.above!r}, "
            "which is the engine's"
        )
    return ""
