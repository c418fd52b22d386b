"""What `headwater status` says of the resources of a site."""

from __future__ import annotations

from typing import Any

from headwater.deploy.control.messages import PartState, Report


def resources_of(cores: float, report: Report | None, state: PartState | None) -> dict[str, Any]:
    """Describe cores, memory, what is promised there and to our part, price and carbon intensity, as last reported."""
    resources = None if report is None else report.resources
    if resources is None:
        return {"cores": cores}
    own = None if state is None or state.pid is None else resources.lane_of(state.pid)
    return {
        "cores": resources.cores,
        "free_memory_bytes": resources.free_memory_bytes,
        "price": resources.price,
        "carbon": resources.carbon,
        "promised": {
            "capacity": round(resources.capacity, 4),
            "held": round(resources.promised, 4),
            "left": round(resources.capacity - resources.promised, 4),
            "kept": sum(lane.kept for lane in resources.lanes),
            "broken": sum(lane.broken for lane in resources.lanes),
        },
        "promise": None
        if own is None
        else {"cores": own.cores, "kept": own.kept, "broken": own.broken, "causes": own.causes},
    }
