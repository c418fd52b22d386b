"""Sites and plans, answered for over HTTP as `headwater serve` answers for flows: what the dashboard shows of them.

sites   what a coordinator says of its flow and of all sites, and what it is asked to do
plans   placements of flows on nets: found, changed by hand, rehearsed, deployed
routes  what can be asked for; requests is what is sent, schemas what both look like
"""
