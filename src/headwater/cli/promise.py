"""What commands say about promises: the contract of a command line."""

from __future__ import annotations

from headwater.errors import FlowError
from headwater.flow.contract import Above, Contract
from headwater.flow.flow import Flow


def contract_of(
    flow: Flow, rate: str | None, within: str | None = None, above: Above | None = None, burst: float | None = None
) -> Contract | None:
    """Return what a command line asks for, or the flow's own contract where it asks for nothing; None without either."""
    if rate is not None:
        return Contract.of(rate, within, burst=burst, above=above or "best effort")
    own = flow.promised
    if own is None or not (within or above or burst):
        return own
    raise FlowError(
        f"flow {flow.name!r} has a contract of its own ({own}); to run under another, say its rate too: --promise RATE"
    )
