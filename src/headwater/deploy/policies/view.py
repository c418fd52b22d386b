"""A site as a policy sees it: what counts there, how much it would promise the flow, and why the flow should leave it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.deploy.control.messages import Kind, Lane, Report
from headwater.rate.ledger import LANE

_SLACK = 1e-6  #: sums of cores may pass a limit by rounding


@dataclass(frozen=True, slots=True)
class View:
    """One site; figures are rounded, so that noise which means nothing is no news."""

    name: str
    here: bool = False
    price: float | None = None
    carbon: float | None = None
    free: float = LANE  #: cores that one part of the flow could have there, what it holds counted in
    load: float = 0.0  #: the share of it that others than the flow take, beyond what they do at the idlest site
    why: str = ""  #: why steps of the flow should leave, and none should come
    closed: str = ""  #: why no more steps should come, while those that are there may stay
    kind: Kind = "engine"
    core_ips: float | None = None  #: what one of these cores does, where it is not that of a device of the net
    reserves: bool = True  #: whether cores can be held there for what is promised

    def news(self, before: View | None) -> list[str]:
        """Say what has changed since."""
        if before is None or before.here != self.here:
            return [f"site '{self.name}' {'has joined' if self.here else 'is away'}"] if before or self.here else []
        changes = [
            f"{what} at '{self.name}' {_figure(was)} → {_figure(now)}"
            for what, was, now in (
                ("price", before.price, self.price),
                ("carbon intensity", before.carbon, self.carbon),
                ("cores to promise", before.free, self.free),
                ("load", before.load, self.load),
            )
            if was != now
        ]
        return changes + [self.why] * (self.why != before.why and bool(self.why))


def _figure(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.4g}"


def view_of(
    name: str,
    report: Report | None,
    *,
    here: bool,
    pid: int | None,
    price: float | None,
    idlest: float,
    kind: Kind = "engine",
) -> View:
    """Return a site as it was last reported; `pid` is the flow's own process there, `price` what the net says of it."""
    resources = None if report is None else report.resources
    if report is None or resources is None:
        return View(name, here=here, price=price, kind=kind)
    own = resources.lane_of(pid) if pid is not None else None
    own_cores = 0.0 if own is None else own.cores
    free = resources.capacity - resources.promised + own_cores
    why = ""
    going = who_goes(resources.lanes, resources.capacity) if resources.reserves else None
    if own is not None and going is not None:
        if going.id == own.id:
            why = (
                f"site '{name}' has promised {resources.promised:.2f} cores and can keep {resources.capacity:.2f}; "
                f"'{own.flow}', with {own.cores:.2f} of them, is the least that makes room"
            )
            free = 0.0
        else:
            free = own_cores
    if kind == "spark":  # an application has whole cores; of a cluster, none of this ledger
        free = math.floor(free) if resources.reserves else resources.capacity
    else:
        free = min(LANE, free)
    load = max(0.0, resources.busy - idlest)
    return View(
        name,
        here=here,
        price=price if resources.price is None else resources.price,
        carbon=resources.carbon,
        free=round(max(0.0, free), 3),
        load=round(4 * load) / 4,
        why=why,
        kind=kind,
        core_ips=resources.core_ips,
        reserves=resources.reserves,
    )


def idlest_load(reports: Mapping[str, Report]) -> float:
    """Return the load of the site that has least of it: only what another has beyond that could be escaped by moving."""
    return min((each.resources.busy for each in reports.values() if each.resources is not None), default=0.0)


def who_goes(lanes: list[Lane], capacity: float) -> Lane | None:
    """Return the promise that should leave a site which has given too many; None where it has not.

    The smallest of those that make enough room alone; where none does, the smallest. Everybody who looks at the same ledger
    finds the same, so that not all leave at once.
    """
    short = sum(lane.cores for lane in lanes) - capacity
    if short <= _SLACK:
        return None
    order = sorted(lanes, key=lambda lane: (lane.cores, lane.id))
    return next((lane for lane in order if lane.cores >= short - _SLACK), order[0])
