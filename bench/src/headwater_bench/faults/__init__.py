"""Protocols under every fault that can be thought of, without a thread or a clock: a seed decides all that happens.

Checkpoints: `shapes` makes flows, `sinks` a sink that outlives crashes, `world` runs the engine's own tasks and its
checkpointer by a seeded schedule on a disk that fails, `trial` crashes it, goes on, and compares the end with an undisturbed
run. `log` does so with the durable log, `bridge` with two sites and the network between them; `protocols` says which of them
a seed is of.
"""

from headwater_bench.faults.trial import Trial, ViolationError

__all__ = ["Trial", "ViolationError"]
