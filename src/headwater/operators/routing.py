"""Where what an instance made goes: to one receiver, to each in turn, to all, or to each by the keys of its records."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.operators.execution_graph import Instance, Route
from headwater.operators.operator import DEAD, spread
from headwater.operators.queue import Control, Delivery


class Router:
    """Addresses batches, watermarks and words about checkpoints to the instances that come after one."""

    def __init__(self, instance: Instance) -> None:
        self._routes, self._number, self._step = instance.routes, instance.number, instance.step
        self._next: dict[int, int] = {}  #: who is next, for each route that shuffles

    def only_target(self) -> tuple[int, int] | None:
        """Return the one place where the main output goes; None where it is not that simple."""
        routes = self._routes.get(0, [])
        return routes[0].targets[0] if len(routes) == 1 and len(routes[0].targets) == 1 else None

    def send(self, port: int, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
        """Send a batch of one output, and the time that is reached with it."""
        for route in self._routes.get(port, ()):
            if batch.length:
                self.send_along(route, batch, watermark, deliveries)
            elif watermark > NO_WATERMARK:
                _send_time(route.targets, watermark, deliveries)

    def send_watermark(self, watermark: int, deliveries: list[Delivery]) -> None:
        """Tell all receivers of all outputs, given how far time has come here; dead letters only learn of the end."""
        watermark = self._step.time_behind(watermark)
        if watermark == NO_WATERMARK:
            return
        for port, routes in self._routes.items():
            if port != DEAD or watermark == END:
                for route in routes:
                    _send_time(route.targets, watermark, deliveries)

    def send_control(self, control: Control, deliveries: list[Delivery], *, dead: bool = True) -> None:
        """Send a word to all receivers, or to all but those of dead letters."""
        for port, routes in self._routes.items():
            if port == DEAD and not dead:
                continue
            for route in routes:
                for to, channel in route.targets:
                    deliveries.append(Delivery(to, channel, None, NO_WATERMARK, 1, control))

    def send_along(self, route: Route, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
        """Send a batch along a route; instances that get no record still learn how far time has come."""
        targets = route.targets
        if len(targets) == 1 or route.grouping == "one":
            receivers = targets[:1]
        elif route.grouping == "all":
            receivers = targets
        elif route.grouping == "key":
            _send_by_key(route, batch, watermark, deliveries)
            return
        else:
            at = self._next.get(id(route), self._number) % len(targets)
            self._next[id(route)] = at + 1
            receivers = targets[at : at + 1]
        for to, channel in receivers:
            deliveries.append(Delivery(to, channel, batch, watermark, batch.length))
        if watermark > NO_WATERMARK and len(receivers) < len(targets):
            _send_time([target for target in targets if target not in receivers], watermark, deliveries)


def _send_by_key(route: Route, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
    for target, part in zip(route.targets, spread(batch, route.keys, len(route.targets)), strict=True):
        if part is not None:
            deliveries.append(Delivery(*target, part, watermark, part.length))
        elif watermark > NO_WATERMARK:
            _send_time([target], watermark, deliveries)


def _send_time(targets: Iterable[tuple[int, int]], watermark: int, deliveries: list[Delivery]) -> None:
    for to, channel in targets:
        deliveries.append(Delivery(to, channel, None, watermark, 1))
