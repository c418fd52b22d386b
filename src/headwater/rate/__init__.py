"""Promised rates, after Storm-RTS: a flow is granted a rate and a latency, and keeps them whatever else the machine runs.

`start` has a flow's contract admitted and runs it in this process; the rest is how.

estimate   how many cores a promise needs, by the paper's reckoning and by ours; what would fit instead
profiler   measures that: cold, once a tick, by the processor's clock; chain is what it runs
admission  whether a promise can be given: by the estimate, then by a trial; reservation is a yes, advance_reservation one
           for a flow that starts soon, refused a no with what would fit; starting asks, and begins
ledger     which promises hold how many cores; supervisor keeps it, client talks to it in messages; headroom only looks; peer
           is who they talk to
grade      what this machine allows for keeping promises; cgroups is the base of it, real_time what lanes within theirs have
lane       a promised flow at work; gate counts, sheds or holds what comes, by a bucket
windows    the proof: seconds kept and broken, and why; counts adds lanes up, watch tells; process is what the system knows
keeper     starts a lane again that died; forks has it forked from a warm parent, fork_context is what it has from there
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_names

if TYPE_CHECKING:
    from headwater.rate.client import Client, board
    from headwater.rate.estimate import Nearest, cores, invocations, nearest, tick_of
    from headwater.rate.headroom import Answer, Holder, Room, room
    from headwater.rate.lane import PromisedLanes, PromisedRun
    from headwater.rate.profiler import demanding
    from headwater.rate.starting import start

__all__ = [
    "Answer",
    "Client",
    "Holder",
    "Nearest",
    "PromisedLanes",
    "PromisedRun",
    "Room",
    "board",
    "cores",
    "demanding",
    "invocations",
    "nearest",
    "room",
    "start",
    "tick_of",
]

#: loaded on use: a supervisor is small, and whoever only asks for it needs no engine
_FROM = {
    **dict.fromkeys(("Answer", "Holder", "Room", "room"), "headroom"),
    **dict.fromkeys(("Client", "board"), "client"),
    **dict.fromkeys(("Nearest", "cores", "invocations", "nearest", "tick_of"), "estimate"),
    **dict.fromkeys(("PromisedLanes", "PromisedRun"), "lane"),
    "demanding": "profiler",
    "start": "starting",
}

__getattr__, __dir__ = lazy_names(__name__, _FROM)
