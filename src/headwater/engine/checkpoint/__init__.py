"""Checkpoints: what a run was at one moment, so that a later one goes on from there as if nothing had happened.

`coordinator` decides when one is made and when it is complete (pure), `checkpointer` is the thread that does what it says,
`store` keeps checkpoints in a folder, and `watch` notices that somebody has deleted them. When a run goes on,
`compatibility` tells whether it can, `recovery` finds what belongs to which task, and `ledgers` which notes of sinks count.
Where the flow is spread over other instances or lanes than then (`distribution`), `drain` first brings all to one moment.

A checkpoint is a consistent cut: sources say how far they have read and send barriers behind their last records; a task
saves itself at the first word of it, sends barriers on, and keeps what comes after that by channels whose barriers have not
come. Nobody waits for anybody.
"""

from headwater.engine.checkpoint.checkpointer import Checkpointer

__all__ = ["Checkpointer"]
