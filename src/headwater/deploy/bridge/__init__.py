"""Bridges: what crosses from site to site, in order and once.

Read in this order: `messages` (what the two ends say), `protocol` (what they decide: pure), `buffer` (where a sender keeps
what is not safe at the other end), `outbound` and `inbound` (ends between the flow and the network, with `arrivals`, and
`fitting`, which trusts nobody; who sends to several sites has a sender for each),
`links` (connections: the only file that knows sockets), `outlet` and `inlet` (the sink and the source of a flow). `memory`
is a bridge within a process. `headwater_bench.faults.bridge` drives both ends by seeds, on a simulated disk and network.
"""
