"""What a coordinator says, asked for by whatever thread; also while there is none, of the sites that wait for one."""

from __future__ import annotations

from typing import Any

from headwater.deploy.chart import Chart
from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.asking import NobodyError, ask, at_rest
from headwater.deploy.coordinator.state import StateFolder
from headwater.net.net import Net


class Sites:
    """Answers for the sites of a state folder; `net` is where they stand, for as long as nothing is deployed."""

    def __init__(self, folder: StateFolder, net: Net | None = None) -> None:
        self._folder = folder
        self._chart = None if net is None else Chart.of(net)

    def status(self) -> dict[str, Any]:
        """Describe the flow that is deployed and all sites, as `headwater status --json` does; `why` where nobody can."""
        try:
            status = ask(self._folder, "status")
        except NobodyError:
            status = at_rest(self._folder)
        if status["net"] is None and self._chart is not None:
            status["net"] = self._chart.describe()
        return status

    def move(self, steps: list[str], site: str) -> dict[str, Any]:
        """Begin to move steps to a site; RunError says why that cannot be."""
        return ask(self._folder, Ask("move", steps, site))

    def drain(self, site: str, to: str) -> dict[str, Any]:
        """Begin to move all that can leave a site, to another one or where the policy wants it."""
        return ask(self._folder, Ask("drain", [site], to))

    def open(self, site: str) -> dict[str, Any]:
        """Let the policy use a site again that was drained."""
        return ask(self._folder, Ask("open", site=site))
