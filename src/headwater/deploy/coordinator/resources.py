"""What `headwater status` says of the resources of a site."""

from __future__ import annotations

from typing import Any

from headwater.deploy.control.messages import PartState, Report


def resources_of(cores: float, report: Report | None, state: PartState | None) -> dict[str, Any]:
    """Describe cores, memory, what is promised there and to our part, price and carbon intensity, as last reported."""
    found = None if report is None else report.resources
    if found is None:
        return {"cores": cores}
    own = None if state is None or state.pid is None else found.lane_of(state.pid)
    return {
        "cores": found.cores,
        "free_memory_bytes": found.free_memory_bytes,
        "price": found.price,
        "carbon": found.carbon,
        "promised": {
            "capacity": round(found.capacity, 4),
            "held": round(found.promised, 4),
            "left": round(found.capacity - found.promised, 4),
            "kept": sum(lane.kept for lane in found.lanes),
            "broken": sum(lane.broken for lane in found.lanes),
        },
        "promise": None
        if own is None
        else {"cores": own.cores, "kept": own.kept, "broken": own.broken, "causes": own.causes},
    }
