"""Runs a planned flow at several sites: `cut` makes parts of it, one for each site, and `bridge/` joins them again.

cut             a flow and the site of each step → the flow that each site runs, and the streams that cross
bridge/         how a stream crosses: `memory` within a process, `outlet` and `inlet` over a network
certificates    who may talk to whom: an authority of one's own, and mutual TLS; `token` admits a site by name
part            what one site runs, as it travels there: source files and a description (`bundle`), signed
bridge_ends     the ends of a part's bridges, in its own process; `routes` is where they go to and come from at present
recut           a flow cut anew: checkpoints of old parts → of new ones, and which parts go on
state_transfer  what of them travels; `ahead` is large state that goes before it
control/        what sites and the coordinator say to each other
site/           the agent of a site: runs its part, and goes on by itself
promise         what a promised rate takes at each site
policies/       where steps should be, and when it is worth moving them
coordinator/    hands each site its part, and knows how all of them fare
"""

from headwater.deploy.bridge.inlet import Inlet
from headwater.deploy.bridge.links import Links
from headwater.deploy.bridge.memory import MemoryEnds
from headwater.deploy.bridge.outlet import Outlet
from headwater.deploy.bridge.room import Room
from headwater.deploy.certificates import Identity, issue, tls_name
from headwater.deploy.cut import Crossing, Cut, Ends

__all__ = [
    "Crossing",
    "Cut",
    "Ends",
    "Identity",
    "Inlet",
    "Links",
    "MemoryEnds",
    "Outlet",
    "Room",
    "issue",
    "tls_name",
]
