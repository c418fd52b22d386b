"""A site: what `headwater site` runs on a machine that runs parts of flows.

folder    where a site keeps what it has: its identity, its parts, their checkpoints
agent     what to do about what the coordinator says (pure)
work      does it: parts are flows of a `headwater serve` of the site's own
resources what a site has and promises (`looked` asks apart), and what it says of itself: `quote`
link      the line to the coordinator, which is dialed and kept
"""
