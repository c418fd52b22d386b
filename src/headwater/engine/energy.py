"""What a machine draws, where it has a counter that may be read: RAPL, through Linux's powercap."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/class/powercap")


class Meter:
    """Counts joules since it was opened, over all packages."""

    def __init__(self, zones: list[Path]) -> None:
        self._zones = zones
        self._last = {zone: _microjoules(zone, "energy_uj") for zone in zones}
        self._total_uj = 0

    def joules(self) -> float:
        """Return joules so far. Counters start over at their end, so ask more often than that happens (minutes)."""
        for zone in self._zones:
            now = _microjoules(zone, "energy_uj")
            difference = now - self._last[zone]
            self._total_uj += difference if difference >= 0 else difference + _microjoules(zone, "max_energy_range_uj")
            self._last[zone] = now
        return self._total_uj / 1e6


def meter(root: Path = ROOT) -> Meter | str:
    """Return a meter, or why there is none."""
    zones = sorted(zone for zone in root.glob("*rapl:*") if zone.name.count(":") == 1) if root.is_dir() else []
    if not zones:
        return f"no energy counter: {root} has no RAPL zone (a virtual machine seldom has one)"
    try:
        return Meter(zones)
    except (OSError, ValueError) as slip:
        return f"an energy counter that may not be read: {slip}"


def _microjoules(zone: Path, name: str) -> int:
    return int((zone / name).read_text())
