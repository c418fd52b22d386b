"""Whether steps should move now: a reason that holds, a gain that is worth it, and a rest after each move.

Pure: time, what sites report and where steps are come in; a decision comes out, or nothing. What keeps it from flapping: a
reason must hold for `settle_s`, a move for gain must save at least `gain` of what counts and come `rest_s` after the last,
moves that must be come at longer and longer intervals, and a site that broke a promise, or refused a part, is left alone,
longer each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headwater.deploy.policies import policy_named
from headwater.deploy.policies.planning import Look, Planner
from headwater.deploy.policies.policy_state import ABOUT_TO, BROKE, REFUSED, Decision, PolicyState
from headwater.deploy.policies.view import View
from headwater.errors import PlacementError, listed
from headwater.flow.flow import Flow

_LATELY = 10  #: rests that moves are remembered for, where they must be
_LONGEST = 5  #: rests that one that must be waits at most
_SPAN_S = 10.0  #: in which the windows of a promise are counted
_FEWEST = 5  #: windows that say something
_AT_EASE = 4  #: of so many windows of late one at most was broken, or nearly


class Windows(NamedTuple):
    """Those of the promise of the flow's part at a site; of those that were kept, `close` nearly were not."""

    kept: int
    broken: int
    close: int = 0


class Decider:
    """Decides for one flow; `policed` is what it keeps."""

    def __init__(self, flow: Flow, policed: PolicyState) -> None:
        self.policed = policed
        self.planner = Planner(
            flow, policed.asked, policed.contract, policy_named(policed.name), best_effort=policed.best_effort
        )
        self.waits = ""  #: why nothing is done though something should be
        self._name = flow.name
        self._sources = [name for name, step in flow.steps.items() if step.is_source]
        self._stay = [name for name, step in flow.steps.items() if step.is_source or step.is_sink]
        self._last_views: dict[str, View] = {}  #: sites as they were at the last decision
        self._rated = self._rates  #: and what sources brought then
        self._since: tuple[Any, float] | None = None  #: what is about to be done, and since when
        self._looked: tuple[Any, Look] | None = None
        self._counted: dict[str, deque[tuple[float, Windows]]] = {}
        self._began_s: dict[str, float] = {}  #: when the process that keeps a site's promise was first seen
        self._at_ease: set[str] = set()  #: sites whose process has shown that it keeps the promise with time to spare

    def decide(
        self,
        now_s: float,
        views: Mapping[str, View],
        sites: Mapping[str, str],
        windows: Mapping[str, Windows],
        rates_hz: Mapping[str, float] | None = None,
    ) -> Decision | None:
        """Return what to do now; `views` has all sites of the net, `windows` those of the flow's own promises.

        `rates_hz` is what sources bring, as measured; where a rate is promised, that counts and no other.
        """
        self._set_back(now_s)
        if self.policed.contract is None:
            self.policed.rate(rates_hz or {})
        current = self._judged(now_s, views, windows)
        self._last_views = self._last_views or current
        away = sorted({at for at in sites.values() if not current[at].here})
        if away:
            self.waits = f"sites {listed(away)} are away, and the state of their steps is there"
            self._since = None
            return None
        look = self._look(current, sites, self.policed.held)
        self.waits = ""
        if (look.must_move or look.crowded) and not look.moves:
            self.waits = self.planner.no_site_admits(current, look.crowded or look.now.reason)
        if not look.moves or not (look.must_move or look.gain >= self.policed.gain):
            self._since = None
            return None
        # what must be must be wherever to; a gain is one if it stays the same for a while
        about = "must" if look.must_move else frozenset(look.moves.items())
        if self._since is None or self._since[0] != about:
            self._since = about, now_s
        if now_s - self._since[1] < self.policed.settle_s or now_s < self._rested_s(now_s, forced=look.must_move):
            return None
        decision = Decision(
            at_s=now_s, why=self._why(look, current), forced=look.must_move, moves=look.moves, expects=look.expects
        )
        self._last_views, self._since, self._rated = current, None, self._rates
        return decision

    def _set_back(self, now_s: float) -> None:
        """Let nothing be later than now: where a clock was set back, rests begin anew instead of lasting until then."""
        self.policed.clamp(now_s)
        if self._since is not None and self._since[1] > now_s:
            self._since = self._since[0], now_s
        self._began_s = {site: min(at_s, now_s) for site, at_s in self._began_s.items()}
        for history in self._counted.values():
            if history and history[-1][0] > now_s:
                history.clear()

    def leaving(self, views: Mapping[str, View], sites: Mapping[str, str], site: str, now_s: float) -> Decision:
        """Return where all that can leave a site should go, as somebody asks; PlacementError where there is no place.

        Who moved a step there by hand has thought better of it.
        """
        why = f"site '{site}' is drained"
        current = {**self._judged(now_s, views, {}), site: replace(views[site], why=why)}
        look = self._look(current, sites, [step for step, at in self.policed.held.items() if at != site])
        if look.then.device is None:
            raise PlacementError(self.planner.no_site_admits(current, look.then.reason))
        return Decision(at_s=now_s, why=why, forced=True, moves=look.moves, expects=look.expects)

    def worth(self, views: Mapping[str, View], sites: Mapping[str, str]) -> dict[str, float | None]:
        """Return what the flow is worth where it is, by what the policy minimises."""
        return {
            name: now
            for name, (now, _) in self._look(dict(views), sites, self.policed.held).expects.items()
            if name != "state_bytes"
        }

    @property
    def _rates(self) -> dict[str, float]:
        return {source: self.policed.rated(source) for source in self._sources}

    # -- what is seen -----------------------------------------------------------------------------------------------------

    def _judged(self, now_s: float, views: Mapping[str, View], windows: Mapping[str, Windows]) -> dict[str, View]:
        """Return the sites with what is known of them here: drained, or not to be trusted for a while."""
        policed = self.policed
        for site, counted in windows.items():
            how = self._breaks(now_s, site, counted)
            if how:
                policed.bar(site, now_s, how)
        current = dict(views)
        for name, bar in policed.barred.items():
            if name in current and now_s < bar.until_s:
                left_s = bar.until_s - now_s
                reason = f"site '{name}' {bar.why}, and is left alone for {left_s:.0f} s"
                is_refusal = bar.why == REFUSED  # what is there does well
                current[name] = replace(current[name], closed=reason) if is_refusal else _apart(current[name], reason)
        for name in policed.drained:
            if name in current:
                current[name] = _apart(current[name], f"site '{name}' is drained")
        return current

    def _breaks(self, now_s: float, site: str, counted: Windows) -> str:
        """Say whether most windows of late were broken, or nearly, where that was not so before; nothing if not.

        Those do not count in which a start or a move is made up for. A promise that was never kept with time to spare is no
        worse than it was made: nobody would be better off elsewhere.
        """
        history = self._counted.setdefault(site, deque())
        if history and sum(counted[:2]) < sum(history[-1][1][:2]):
            history.clear()  # another process counts anew
        if not history:
            self._began_s[site] = now_s
            self._at_ease.discard(site)
        history.append((now_s, counted))
        while history and history[0][0] < now_s - _SPAN_S:
            history.popleft()
        kept, broken, close = (last - first for first, last in zip(history[0][1], counted, strict=True))
        quiet_s = max([self._began_s[site], *self.policed.moved_s[-1:]]) + self.policed.rest_s
        if kept + broken < _FEWEST or history[0][0] < quiet_s:
            return ""
        if _AT_EASE * (broken + close) <= kept + broken:
            self._at_ease.add(site)
        how = BROKE if 2 * broken >= kept + broken else ""
        if not how and site in self._at_ease and 2 * (broken + close) >= kept + broken:
            how = ABOUT_TO
        if how:
            history.clear()
        return how

    def _look(self, views: dict[str, View], sites: Mapping[str, str], fixed: Iterable[str]) -> Look:
        """Plan, unless nothing has changed since the last time; steps that are `fixed` stay, as sources and sinks do."""
        plain = (replace(each, why=str(bool(each.why)), closed=str(bool(each.closed))) for each in views.values())
        stay = [*self._stay, *(step for step in fixed if step in sites)]
        key = (tuple(plain), tuple(sites.items()), tuple(stay), tuple(self._rates.items()))
        if self._looked is None or self._looked[0] != key:
            self.planner.rates_hz = self.policed.rates_hz
            self._looked = key, self.planner.look(views, sites, stay)
        return self._looked[1]

    # -- when -------------------------------------------------------------------------------------------------------------

    def _rested_s(self, now_s: float, *, forced: bool) -> float:
        """Return from when on there may be a move again."""
        policed = self.policed
        if not policed.moved_s:
            return float("-inf")
        if not forced:
            return policed.moved_s[-1] + policed.rest_s
        lately = sum(at_s > now_s - _LATELY * policed.rest_s for at_s in policed.moved_s)
        pause_s = min(_LONGEST * policed.rest_s, policed.settle_s * 2.0**lately)
        return policed.moved_s[-1] + pause_s

    def _why(self, look: Look, current: Mapping[str, View]) -> str:
        places = {at for pair in look.moves.values() for at in pair}
        news = [each for name in current if name in places for each in current[name].news(self._last_views.get(name))]
        news += [
            f"rate of '{source}' {self._rated[source]:.4g} → {hz:.4g} records/s"
            for source, hz in self._rates.items()
            if hz != self._rated[source]
        ]
        if look.must_move:
            reasons = dict.fromkeys(current[at].why for at, _ in look.moves.values() if current[at].why)
            return "; ".join(reasons) or look.now.reason
        if look.crowded:
            return "; ".join([*news, look.crowded])
        goal = str(look.then.objective).partition(" then ")[0]
        saving = f"{goal} {look.now.value:.4g} → {look.then.value:.4g}"
        return "; ".join([*news, saving])


def _apart(view: View, why: str) -> View:
    return view if view.why else replace(view, why=why)
