"""The coordinator: hands each site its part of a flow, and knows how all of them fare.

state      what it keeps in its folder, through its own kill -9
machine    what to do about what sites say and people ask for (pure)
resources  what status says of what sites have, promise and cost
policing   lets a policy look at the sites, and keeps account of what it decided
stages     how long each stage of a move took
server     the connections of the sites, and of `headwater status` and `stop`
asking     the other end: asks a coordinator that runs
"""
