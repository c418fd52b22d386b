"""Whether a promise can be given: first by the estimate, then by a short trial under the reservation itself."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from sys import maxsize
from typing import Any

from headwater.data.batch import Batch, concat_batches
from headwater.engine import start
from headwater.engine.lanes import LanesRun, lane_count
from headwater.engine.lanes.child import other_threads
from headwater.engine.profiler import sampled
from headwater.errors import RateError, RunError
from headwater.flow.contract import Contract, rate_written
from headwater.flow.duration import written
from headwater.flow.endpoints import Source, at_rate, resume_of
from headwater.flow.flow import Flow
from headwater.flow.profile import Demand, Profile
from headwater.flow.steps import Kind, Read
from headwater.io import Items, Replay
from headwater.io.open_loop_source import OpenLoopSource
from headwater.rate import born, process
from headwater.rate.chain import dry
from headwater.rate.client import Client
from headwater.rate.estimate import backlog, costing, lanes_for, nearest, tick_of
from headwater.rate.ledger import LANE, OPENS, Refusal
from headwater.rate.messages import End, Granted, Refused, Reply, Resume, Resumed, Settle, Tell
from headwater.rate.profiler import demanding
from headwater.rate.reservation import Reservation

TRIAL_S = 3.0
SPARE, PLENTY = 1.3, 1.5
"""How much more is reserved than a trial has used: so much at least, and at most, whatever the estimate says.

A trial is of this flow, here and now; a profile may be of another latency, another day or a busier machine.
"""

_WARM_S = 0.5  #: the first part of a trial, in which kernels are loaded
_ENOUGH = 0.95  #: of the rate that a trial must have kept up with
_SAMPLES = 5_000
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
    """Hold cores for a flow in this process, or raise RateError with the numbers and what would fit.

    Without a profile that has a demand, one is measured here. Sources whose records would be lost by being sampled need
    one, and have no trial. What wants more than one lane may have gets several, if it can be split.
    """
    once = read_once(flow)
    demand = demand_of(flow, contract, profile)
    most = most_lanes(flow)
    lanes, wanted = lanes_for(demand, contract, most)
    while True:
        asked = Reservation("", contract, demand, wanted, None, wanted, "", "", lanes)
        granted = _granted(client.say(asked.ask(flow.name, best_effort=best_effort)), flow, asked, most)
        if once or not trial_s:
            return _held(asked, granted)
        try:
            measured = trial(flow, contract, demand, trial_s, lanes)
            asked = replace(asked, measured=measured)
            needed = min(max(wanted, SPARE * measured), PLENTY * measured)
            more, for_more = lanes_for(costing(demand, needed / wanted), contract, most)
            if more <= lanes or needed <= LANE * lanes:
                return _held(asked, _granted(client.say(Settle(granted.id, needed, measured)), flow, asked, most))
        except BaseException:
            client.say(End(granted.id))
            raise
        client.say(End(granted.id))  # dearer than measured: too much for these lanes, and not for more of them
        lanes, wanted = more, for_more


def granted_or_refused(client: Client, flow: Flow, asked: Reservation, *, best_effort: bool) -> Reservation:
    """Have cores held as they are asked for, or raise RateError with the numbers and what would fit."""
    granted = _granted(client.say(asked.ask(flow.name, best_effort=best_effort)), flow, asked, asked.lanes)
    return _held(asked, granted)


def _held(asked: Reservation, granted: Granted) -> Reservation:
    return replace(asked, id=granted.id, cores=granted.cores, grade=granted.grade, how=granted.how)


def resumed(client: Client) -> Reservation | None:
    """Take over what is held for a lane that died and whose keeper has started this process in its place; None elsewhere."""
    if born.kept is None or not born.kept.deaths:
        return None
    reply = client.say(Resume(born.kept.pid))
    if not isinstance(reply, Resumed):  # a supervisor that has lost its book
        return None
    found, granted = reply.found, reply.granted
    return Reservation(
        granted.id,
        reply.contract,
        found.demand,
        found.estimated,
        found.measured,
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


def _granted(reply: Reply, flow: Flow, asked: Reservation, most: int) -> Granted:
    if isinstance(reply, Granted):
        return reply
    if not isinstance(reply, Refused):
        raise RateError(f"the supervisor says {reply} where cores were asked for")
    refusal = Refusal(reply.wanted, reply.left, tuple((name, held) for name, held in reply.holders), reply.why)
    seen = "" if asked.measured is None else f" (its trial used {asked.measured:.2f})"
    demand = asked.demand if asked.measured is None else costing(asked.demand, reply.wanted / asked.estimated)
    fits = "" if reply.why == "closed" else f"; {would_fit(demand, asked.contract, refusal.left, most)}"
    raise RateError(
        f"flow {flow.name!r} cannot be promised {asked.contract}: {refusal}{seen}{fits}{_MORE.get(reply.why, '')}"
    )


def would_fit(demand: Demand, contract: Contract, left: float, lanes: int) -> str:
    """Say which rate and which latency would fit into what is left, in so many lanes; 0 for an application."""
    found = nearest(demand, contract, left, lanes)
    return _offered(found.rate_hz, found.latency_s)


def _offered(rate_hz: float | None, latency_s: float | None) -> str:
    parts = []
    if rate_hz:
        parts.append(rate_written(_two_digits(rate_hz)))
    if latency_s is not None:
        parts.append(f"the same rate within {written(math.ceil(latency_s * 1e3) * 1000)}")
    return f"what would fit: {' or '.join(parts)}" if parts else "no rate would fit"


def _tried(rate_hz: float) -> str:
    """Say what a trial has shown to fit; one in which nothing was done shows nothing, also not that no rate would."""
    if rate_hz:
        return _offered(rate_hz, None)
    return "no record came through in that time, so it cannot say which rate would fit; ask for a lower one"


def _two_digits(value: float) -> float:
    """Round down to two digits: what is offered must fit.

    >>> _two_digits(12_990)
    12000.0
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit


def trial(flow: Flow, contract: Contract, demand: Demand, seconds: float = TRIAL_S, lanes: int = 1) -> float:
    """Run a flow's sampled records at the promised rate, nothing written, and return the cores it used.

    What piles up in queues has not been kept up with, even if it was read.
    """
    options = lane_options(contract)
    if lanes > 1:
        options = {name: value for name, value in options.items() if name != "workers"} | {"lanes": lanes}
    running = start(at_promised_rate(dry(flow), contract.rate_hz), **options)
    time.sleep(_WARM_S)
    processes = running.processes() if isinstance(running, LanesRun) else [os.getpid()]
    before, before_s, used_s = running.sample(), time.monotonic(), [process.used_s(each) for each in processes]
    running.done.wait(seconds)
    now_s = [process.used_s(each) for each in processes]
    spent_s, after = time.monotonic() - before_s, running.sample()
    used = [(now - was) / spent_s for now, was in zip(now_s, used_s, strict=True)]
    broke = running.error is not None
    running.abort()
    try:
        running.wait()
    except RunError:
        if broke:
            raise  # else it only was too slow to come back at once, which is what the trial is to show
    piled_up = backlog(demand, after) - backlog(demand, before)
    done_hz = max(0.0, after.records_in - before.records_in - piled_up) / spent_s
    kept = done_hz / contract.rate_hz
    if kept < _ENOUGH:
        raise RateError(
            f"flow {flow.name!r} cannot be promised {contract}: in a trial of {spent_s:.1f} s it took in {kept:.0%} of that "
            f"rate, with {sum(used):.2f} cores; {_tried(done_hz / SPARE)}"
        )
    latency, bound_s = after.since(before).latency, contract.latency_s
    if bound_s is not None and latency.percentile(50) > bound_s * 1e9:
        half, most = (latency.percentile(percent) / 1e9 for percent in (50, 99))
        raise RateError(
            f"flow {flow.name!r} cannot be promised {contract}: in a trial of {spent_s:.1f} s half of its records took "
            f"longer than {half * 1e3:.3g} ms, with {sum(used):.2f} cores; {_offered(None, 2 * most)}"
        )
    if lanes > 1 and max(used) > LANE:
        raise RateError(
            f"flow {flow.name!r} cannot be promised {contract}: in a trial of {lanes} lanes one of them used "
            f"{max(used):.2f} of a core, and may have {LANE:.2f}; {_tried(contract.rate_hz * LANE / max(used) / SPARE)}"
        )
    return sum(used)


def at_promised_rate(flow: Flow, rate_hz: float) -> Flow:
    """Return the flow with sources that bring their records at this rate, all together and for ever."""
    samples = sampled(flow, _SAMPLES)
    kinds: dict[str, Kind] = {}
    for name, (found, _) in samples.items():
        kind = flow.steps[name].kind
        assert isinstance(kind, Read)
        kinds[name] = Read(_for_ever(kind.source, found, rate_hz / len(samples)))
    return flow.replaced(kinds)


def _for_ever(source: Source, found: list[Batch], rate_hz: float) -> Source:
    """Return a source's records at a rate: its own while it has more of them, else those found, over and over.

    One that ends would be over before a trial has seen anything of it, the sooner the higher the rate.
    """
    paced = at_rate(source, rate_hz)
    if paced is None:
        return Replay(concat_batches(found), rate_hz)
    if isinstance(paced, OpenLoopSource) and min(paced.open_loop.total, paced.most or 0) < maxsize:
        return Replay(Items(concat_batches(found).rows(), source.schema), rate_hz, time=paced.open_loop.time)
    return paced


def lane_options(contract: Contract) -> dict[str, Any]:
    """Return how a lane runs: one worker that takes all that waits, and sources that let records gather for a tick."""
    tick_s = tick_of(contract)
    return {
        "workers": 1,
        "take": "all",
        "linger": f"{tick_s * 1e3:.3f} ms",
        "chunk": max(256, math.ceil(2 * contract.rate_hz * tick_s)),
    }
