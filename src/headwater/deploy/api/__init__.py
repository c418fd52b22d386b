"""Sites, answered for over HTTP as `headwater serve` answers for flows: what the dashboard shows of them.

sites   what a coordinator says of its flow and of all sites, and what it is asked to do
routes  what can be asked for
"""
