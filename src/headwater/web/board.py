"""Where steps are placed, as boxes: zones, their devices, and steps that can be dragged from one to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from headwater.web.figures import percent

_FULL = 0.9  #: of a device's processor, from which on it is called full


class Board(ui.element, component="board.js"):  # type: ignore[misc, call-arg]
    """Shows a placement; `on_pick` is called with a step that is chosen, `on_place` with one dragged to a device."""

    def __init__(self, on_pick: Callable[[str], Any], on_place: Callable[[str, str], Any]) -> None:
        super().__init__()
        self._props["zones"], self._props["chosen"], self._props["label"] = [], "", "Devices, and the steps on them"
        self.on("pick", lambda event: on_pick(event.args))
        self.on("place", lambda event: on_place(event.args["step"], event.args["device"]))

    def show(self, document: Mapping[str, Any], before: Mapping[str, str], step: str) -> None:
        """Show a placement as it is accounted for; steps that are elsewhere than `before` are marked."""
        self._props["zones"] = zones_of(document, before)
        self._props["chosen"] = step
        self.update()


def zones_of(document: Mapping[str, Any], before: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return zones with devices and their steps, as the board draws them; those with steps come first."""
    hosts = {row["device"]: row for row in document["devices"]}
    pinned = set(document["pinned"])
    zones: dict[str, dict[str, Any]] = {}
    for offer in document["offers"]:
        host = hosts.get(offer["device"])
        zone = zones.setdefault(offer["zone"], {"name": offer["zone"], "cloud": offer["cloud"], "devices": []})
        zone["devices"].append(_device(offer, host, before, pinned))
    all_zones = list(zones.values())
    for zone in all_zones:
        zone["devices"].sort(key=lambda device: not device["steps"])
    return sorted(all_zones, key=lambda zone: not any(device["steps"] for device in zone["devices"]))


def _device(
    offer: Mapping[str, Any], host: Mapping[str, Any] | None, before: Mapping[str, str], pinned: set[str]
) -> dict[str, Any]:
    busy = None if host is None else host["utilisation"]
    steps = [] if host is None else [_step(step, offer["device"], before, pinned) for step in host["steps"]]
    return {
        "name": offer["device"],
        "kind": offer["class"],
        "busy": None if busy is None else round(100 * min(1.0, busy), 1),
        "load": "free" if busy is None else f"{percent(busy)} busy",
        "full": busy is not None and busy > _FULL,
        "steps": steps,
    }


def _step(step: str, device: str, before: Mapping[str, str], pinned: set[str]) -> dict[str, Any]:
    moved = before.get(step, device) != device
    is_pinned = step in pinned
    return {
        "name": step,
        "moved": moved,
        "pinned": is_pinned,
        "mark": " (moved)" if moved else " (pinned)" if is_pinned else "",
        "about": f"{step}, moved from {before[step]}" if moved else f"{step} is pinned here" if is_pinned else step,
    }
