"""All that decides when a step runs: pure, so that threads, the simulator and a test drive the same object.

`scheduler` turns events into activations, `batch_size` says how much one takes, `throttle` which sources are held.
"""

from __future__ import annotations

from headwater.engine.scheduler.batch_size import Take, batch_size
from headwater.engine.scheduler.scheduler import Activation, Policy, Scheduler
from headwater.engine.scheduler.throttle import Throttle

__all__ = ["Activation", "Policy", "Scheduler", "Take", "Throttle", "batch_size"]
