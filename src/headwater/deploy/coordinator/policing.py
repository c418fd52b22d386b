"""Lets a policy look at the sites now and then, and keeps account: what it decided, why, what it expected and what came."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import msgspec

from headwater.deploy.coordinator.machine import Coordinator
from headwater.deploy.coordinator.site import Site
from headwater.deploy.coordinator.stages import Stages
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.cut import outlet_of
from headwater.deploy.policies import policy_named
from headwater.deploy.policies.deciding import Decider, Windows
from headwater.deploy.policies.planning import Planner
from headwater.deploy.policies.policy_state import Decision
from headwater.deploy.policies.telling import told, told_came, told_measured
from headwater.deploy.policies.view import View, idlest_load, view_of
from headwater.errors import RunError
from headwater.flow.flow import Flow

log = logging.getLogger("headwater.deploy")

_JOURNAL = "journal.jsonl"
_MEASURE_S = 15.0  #: after a move, until all that is told of late is of after it
_RATED_S = 30.0  #: of the last minute, from which on the rate of a source is one
_SHOWN = 5  #: decisions that status has


class Policing:
    """The policy of the flow that is deployed, if it has one; asked by one task at a time."""

    def __init__(self, machine: Coordinator, folder: Path) -> None:
        self._machine, self._journal = machine, folder / _JOURNAL
        self._decider: Decider | None = None

    def decide(self, flow: Flow, deployed: Deployment, now_s: float) -> Decision | None:
        """Return what the policy wants to be done now; takes its time, and touches nothing but what the policy keeps."""
        decider = self._of(flow, deployed)
        if decider is None:
            return None
        views, windows = self.views(decider.planner, deployed), self._windows(deployed)
        return decider.decide(now_s, views, deployed.sites, windows, self._rates_hz(flow, deployed))

    def leaving(self, flow: Flow, deployed: Deployment, site: str, now_s: float) -> Decision:
        """Return where the policy wants what can leave a site; RunError where no policy is there to say so."""
        decider = self._of(flow, deployed)
        if decider is None:
            raise RunError(
                f"flow '{deployed.name}' was deployed without a policy, which would choose; say where to, with --to SITE"
            )
        return decider.leaving(self.views(decider.planner, deployed), deployed.sites, site, now_s)

    def note(self, flow: Flow, deployed: Deployment, decision: Decision) -> None:
        """Take note of a decision that is about to be carried out, and of how the flow fares until then."""
        assert deployed.policed is not None
        decision.measured = {name: (figure, None) for name, figure in self._measured(flow, deployed).items()}
        deployed.policed.note(decision)
        self._write(decision)
        log.info("policy %s: %s", deployed.policed.name, told(decision))

    def came(self, flow: Flow, deployed: Deployment, stages: Stages, undone: str, refused_by: str = "") -> bool:
        """Take note of what came of the last decision, once it is over; say whether there was one.

        The site by which it was refused is left alone for a while: asked again at once, it would refuse again.
        """
        decider = self._of(flow, deployed)
        if decider is None or not deployed.policed or not deployed.policed.decisions:
            return False
        last = deployed.policed.decisions[-1]
        if last.came is not None:
            return False
        worth = decider.worth(self.views(decider.planner, deployed), deployed.sites)
        now_s = time.time()
        times = {"gap_s": stages.gap_s, "stages_s": stages.to_json()}
        last.came = {"at_s": now_s, **times, "undone": undone, "measures": worth}
        deployed.policed.rest_from(now_s)
        if refused_by:
            deployed.policed.refused(last, refused_by, now_s)
        self._write(last)
        log.info("policy %s: %s", deployed.policed.name, told_came(last))
        return True

    def measure(self, flow: Flow, deployed: Deployment, now_s: float) -> bool:
        """Take note of how the flow fares some seconds after the last decision; say whether it was time for that."""
        last = deployed.policed.decisions[-1] if deployed.policed and deployed.policed.decisions else None
        if last is None or last.came is None or last.came["undone"] or last.id != deployed.id:
            return False  # nothing has come of it, or other moves have since
        is_told = any(after is not None for _, after in last.measured.values())
        if is_told or abs(now_s - last.came["at_s"]) < _MEASURE_S:
            return False
        figures = self._measured(flow, deployed)
        last.measured = {name: (last.measured.get(name, (None, None))[0], figure) for name, figure in figures.items()}
        if not any(figure is not None for figure in figures.values()):
            return False
        assert deployed.policed is not None
        self._write(last)
        log.info("policy %s: %s", deployed.policed.name, told_measured(last))
        return True

    def _measured(self, flow: Flow, deployed: Deployment) -> dict[str, float | None]:
        """Return what the parts have reported of late, all together; None for what no part has told."""
        sites = {name: self._machine.sites[name] for name in deployed.needed if name in self._machine.sites}
        cores = [site.lately.cores for site in sites.values()]
        last = {deployed.sites[name] for name, step in flow.steps.items() if step.is_sink and name in deployed.sites}
        delays = [site.lately.delay_ms for name, site in sites.items() if name in last]
        crossing = {(stream, origin) for stream, origin, _ in deployed.streams if origin in sites}
        return {
            "cores": None if None in cores or not cores else sum(each for each in cores if each is not None),
            "sinks_p50_ms": max((each[0] for each in delays if each is not None), default=None),
            "sinks_p99_ms": max((each[1] for each in delays if each is not None), default=None),
            "crossing_hz": sum(sites[origin].traffic.hz(outlet_of(stream)) for stream, origin in crossing),
        }

    def describe(self, deployed: Deployment) -> dict[str, Any] | None:
        """Describe the policy: its last decisions, and what it waits for."""
        policed = deployed.policed
        if policed is None:
            return None
        return {
            "name": policed.name,
            "contract": None if policed.contract is None else str(policed.contract),
            "waits": "" if self._decider is None else self._decider.waits,
            "rates_hz": policed.rates_hz,
            "drained": policed.drained,
            "held": policed.held,
            "barred": {name: bar.until_s for name, bar in policed.barred.items()},
            "moves": len(policed.moved_s),
            "decisions": [msgspec.to_builtins(each) for each in policed.decisions[-_SHOWN:]],
        }

    def views(self, planner: Planner, deployed: Deployment | None) -> dict[str, View]:
        """Return all sites of the net as they are now."""
        sites = self._machine.sites
        here = {name: site for name, site in sites.items() if site.here}
        idlest = idlest_load({name: site.report for name, site in here.items() if site.report is not None})
        views = {}
        for name in planner.net.zones:
            site = sites.get(name)
            views[name] = view_of(
                name,
                None if site is None else site.report,
                here=site is not None and site.here and site.parts is not None,
                pid=None if site is None or deployed is None else _pid(site, deployed),
                price=planner.price(name),
                idlest=idlest,
                kind="engine" if site is None else site.hello.kind,
            )
        return views

    def _windows(self, deployed: Deployment) -> dict[str, Windows]:
        windows: dict[str, Windows] = {}
        for name in deployed.needed:
            site = self._machine.sites.get(name)
            if site is None or site.report is None or site.report.resources is None:
                continue
            lane = site.report.resources.lane_of(_pid(site, deployed))
            if lane is not None:
                windows[name] = Windows(lane.kept, lane.broken, lane.close)
        return windows

    def _rates_hz(self, flow: Flow, deployed: Deployment) -> dict[str, float]:
        """Return what sources have brought in the last minute, where most of that is known."""
        rates_hz: dict[str, float] = {}
        for name, step in flow.steps.items():
            site = self._machine.sites.get(deployed.sites.get(name, ""))
            if step.is_source and site is not None and site.here and site.reading.told_s >= _RATED_S:
                rates_hz[name] = site.reading.hz(name)
        return rates_hz

    def _of(self, flow: Flow, deployed: Deployment) -> Decider | None:
        policed = deployed.policed
        if policed is None or not policy_named(policed.name).objective:
            return None
        if self._decider is None or self._decider.policed is not policed:
            self._decider = Decider(flow, policed)
        return self._decider

    def _write(self, decision: Decision) -> None:
        try:
            with self._journal.open("ab") as file:
                file.write(msgspec.json.encode(decision) + b"\n")
        except OSError as error:
            log.warning("cannot write the journal %s: %s", self._journal, error.strerror)


def _pid(site: Site, deployed: Deployment) -> int | None:
    state = (site.parts or {}).get(deployed.id_at(site.hello.name))
    return None if state is None else state.pid
