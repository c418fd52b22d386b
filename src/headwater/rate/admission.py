"""Whether a promise can be given: first by the estimate, then by a short trial under the reservation itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.engine.lanes import lane_count
from headwater.engine.lanes.child import other_threads
from headwater.errors import RateError, RunError
from headwater.flow.contract import Contract
from headwater.flow.endpoints import resume_of
from headwater.flow.flow import Flow
from headwater.flow.profile import Demand, Profile
from headwater.flow.steps import Read
from headwater.rate import fork_context
from headwater.rate.client import Client
from headwater.rate.estimate import Nearest, costing, lanes_for, nearest
from headwater.rate.ledger import LANE, OPENS, Refusal
from headwater.rate.messages import End, Granted, Refused, Reply, Resume, Resumed, Settle, Tell
from headwater.rate.profiler import demanding
from headwater.rate.refused import NotPromisedError
from headwater.rate.reservation import Reservation
from headwater.rate.trial import SPARE, TRIAL_S, trial

PLENTY = 1.5
"""How much more is reserved than a trial has used, at most, whatever the estimate says.

A trial is of this flow, here and now; a profile may be of another latency, another day or a busier machine.
"""

ANEW = 1.2
"""How much dearer a flow may look when it is measured once more, as it is when what was offered is asked for."""

SURE = 1.1
"""How much more than a rate that is offered in several lanes a trial has passed."""

_OFFERS = 5  #: rates that are tried, each lower than the one before, until one can be offered
_LOWER = 0.9  #: of the one before, at most

_MORE = {
    "unprotected": "; 'headwater doctor' says what would protect it, --best-effort runs it without protection",
    "closed": f"; {OPENS}",
}


def admit(
    flow: Flow,
    contract: Contract,
    client: Client,
    *,
    profile: Profile | None = None,
    best_effort: bool = False,
    trial_s: float = TRIAL_S,
) -> Reservation:
    """Hold cores for a flow in this process, or raise NotPromisedError with the numbers and what would fit.

    Without a profile that has a demand, one is measured here. Sources whose records would be lost by being sampled need
    one, and have no trial. What wants more than one lane may have gets several, if it can be split; what is offered in
    several has passed a trial.
    """
    tried_s = 0.0 if read_once(flow) else trial_s
    demand = demand_of(flow, contract, profile)
    asked = _Question(flow, client, demand, most_lanes(flow), dearer_anew(profile), best_effort, tried_s)
    try:
        return asked.held(contract)
    except NotPromisedError as no:
        if no.nearest is None or not tried_s:
            raise
        raise no.offering(asked.sure(no.nearest, contract)) from None


@dataclass(frozen=True, slots=True)
class _Question:
    """Whether a flow can be promised a rate here, all but the rate."""

    flow: Flow
    client: Client
    demand: Demand
    most: int  #: lanes
    dearer: float
    best_effort: bool
    trial_s: float

    def held(self, contract: Contract) -> Reservation:
        """Hold cores, or raise NotPromisedError with what would fit as far as that can be reckoned."""
        flow, client, most, dearer = self.flow, self.client, self.most, self.dearer
        lanes, estimated = lanes_for(self.demand, contract, most)
        while True:
            reservation = Reservation("", contract, self.demand, estimated, None, estimated, "", "", lanes)
            request = reservation.ask(flow.name, best_effort=self.best_effort)
            granted = _granted(client.say(request), flow, reservation, most, dearer)
            if not self.trial_s:
                return _with_grant(reservation, granted)
            try:
                measured = trial(flow, _with_grant(reservation, granted), self.trial_s, client)
                reservation = replace(reservation, measured=measured)
                needed = min(max(estimated, SPARE * measured), PLENTY * measured)
                more, for_more = lanes_for(costing(self.demand, needed / estimated), contract, most)
                if more <= lanes or needed <= LANE * lanes:
                    settled = client.say(Settle(granted.id, needed, measured))
                    return _with_grant(reservation, _granted(settled, flow, reservation, most, dearer))
            except BaseException:
                client.say(End(granted.id))
                raise
            client.say(End(granted.id))  # dearer than measured: too much for these lanes, and not for more of them
            lanes, estimated = more, for_more

    def sure(self, nearest: Nearest, contract: Contract) -> Nearest:
        """Return what would fit so that whoever asks for it gets it: what takes several lanes has passed a trial.

        An estimate knows what steps cost in one lane, and not what lanes cost each other. The trial is of a rate that is
        higher by a tenth than what is offered, since no two trials are the same.
        """
        rate_hz, latency_s = nearest.rate_hz, nearest.latency_s
        if latency_s is not None:
            slower = replace(contract, latency_s=latency_s)
            latency_s = latency_s if self._is_sure(slower, contract.rate_hz) is None else None
        for _ in range(_OFFERS):
            if rate_hz is None:
                break
            instead_hz = self._is_sure(contract, rate_hz)
            if instead_hz is None:
                return Nearest(rate_hz, latency_s)
            rate_hz = min(instead_hz / SURE, _LOWER * rate_hz) or None
        return Nearest(None, latency_s)

    def _is_sure(self, contract: Contract, rate_hz: float) -> float | None:
        """Return None where a rate would be admitted with a tenth to spare, else what might be; 0 if nobody can say."""
        offered = replace(contract, rate_hz=SURE * rate_hz)
        if lanes_for(self.demand, offered, self.most)[0] == 1:
            return None
        try:
            self.client.say(End(self.held(offered).id))
        except NotPromisedError as no:
            return 0.0 if no.nearest is None else no.nearest.rate_hz or 0.0
        except RunError:  # a step broke: what was refused is told all the same
            return 0.0
        return None


def granted_or_refused(
    client: Client, flow: Flow, reservation: Reservation, *, best_effort: bool, dearer: float = 1.0
) -> Reservation:
    """Have cores held as they are asked for, or raise RateError with the numbers and what would fit."""
    request = reservation.ask(flow.name, best_effort=best_effort)
    return _with_grant(reservation, _granted(client.say(request), flow, reservation, reservation.lanes, dearer))


def _with_grant(reservation: Reservation, granted: Granted) -> Reservation:
    return replace(reservation, id=granted.id, cores=granted.cores, grade=granted.grade, how=granted.how)


def resumed(client: Client) -> Reservation | None:
    """Take over what is held for a lane that died and whose keeper has started this process in its place; None elsewhere."""
    if fork_context.keeper is None or not fork_context.keeper.deaths:
        return None
    reply = client.say(Resume(fork_context.keeper.pid))
    if not isinstance(reply, Resumed):  # a supervisor that has lost its book
        return None
    findings, granted = reply.found, reply.granted
    return Reservation(
        granted.id,
        reply.contract,
        findings.demand,
        findings.estimated,
        findings.measured,
        granted.cores,
        granted.grade,
        granted.how,
        reply.lanes,
        reply.last or Tell(granted.id, 0.0, 0, 0, above=False),
        reply.silent_s,
    )


def demand_of(flow: Flow, contract: Contract, profile: Profile | None = None) -> Demand:
    """Return what a flow needs for a contract: as its profile has it, or measured here."""
    if profile is not None and profile.demand is not None:
        return profile.demand
    once = read_once(flow)
    if once:
        raise RateError(
            f"flow {flow.name!r}: what {once!r} sends would be lost by measuring with it; make a profile of records in "
            "a file (headwater profile FLOW --contract --input FILE --output P) and give it with --profile P"
        )
    measured = demanding(flow, contract, records=2000, point_s=0.5).demand
    assert measured is not None
    return measured


def dearer_anew(profile: Profile | None) -> float:
    """Return how much dearer a flow may look the next time: no more than now where its profile says what it needs."""
    return ANEW if profile is None or profile.demand is None else 1.0


def most_lanes(flow: Flow) -> int:
    """Return in how many lanes a flow can run here: in one, where nothing of it can be split or none can be forked."""
    if other_threads():
        return 1
    try:
        return lane_count(flow, "auto")
    except RunError:  # it has what lanes do not heed
        return 1


def read_once(flow: Flow) -> str:
    """Return the name of a source whose records can be read only once; nothing where there is none."""
    sources = ((name, step.kind) for name, step in flow.steps.items())
    return next((n for n, k in sources if isinstance(k, Read) and resume_of(k.source) in ("sender", "never")), "")


def _granted(reply: Reply, flow: Flow, reservation: Reservation, most: int, dearer: float) -> Granted:
    if isinstance(reply, Granted):
        return reply
    if not isinstance(reply, Refused):
        raise RateError(f"the supervisor says {reply} where cores were asked for")
    refusal = Refusal(
        reply.wanted, reply.left, tuple((name, cores) for name, cores in reply.holders), reply.why, reply.said
    )
    trial_use = "" if reservation.measured is None else f" (its trial used {reservation.measured:.2f})"
    demand = (
        reservation.demand
        if reservation.measured is None
        else costing(reservation.demand, reply.wanted / reservation.estimated)
    )
    demand = costing(demand, dearer)
    fits = None if reply.why in ("closed", "unwritten") else nearest(demand, reservation.contract, refusal.left, most)
    said = f"flow {flow.name!r} cannot be promised {reservation.contract}: {refusal}{trial_use}"
    raise NotPromisedError(said, fits, _MORE.get(reply.why, ""))
