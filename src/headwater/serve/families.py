"""Metrics of the flows that are served, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.serve.served_flow import ServedFlow
from headwater.web.prometheus import Family


def of_flows(flows: Mapping[str, ServedFlow]) -> list[Family]:
    """Return what the server itself knows of its flows."""
    lifecycles = [(name, flow.lifecycle) for name, flow in flows.items()]
    up = [("", {"flow": name, "state": life.phase}, float(life.phase == "running")) for name, life in lifecycles]
    restarts = [("_total", {"flow": name}, float(life.restarts)) for name, life in lifecycles]
    refusals = [("", {"flow": name}, float(life.change is not None)) for name, life in lifecycles]
    return [
        Family("headwater_flow_up", "gauge", "Whether a flow runs", up),
        Family("headwater_flow_restarts", "counter", "How often it was started again because it had died", restarts),
        Family("headwater_flow_change_refused", "gauge", "Whether a changed file could not take over", refusals),
    ]


def label_flow(name: str, family: Family) -> Family:
    """Name the flow as the server does, by its file: the flows of two files may call themselves the same."""
    return family._replace(values=[(suffix, labels | {"flow": name}, value) for suffix, labels, value in family.values])
