"""Runs a planned flow at several sites: `cut` makes parts of it, one for each site, and `bridge/` joins them again.

cut             a flow and the site of each step → the flow that each site runs, and the streams that cross
bridge/         how a stream crosses: `memory` within a process
"""

from headwater.deploy.bridge.memory import MemoryEnds
from headwater.deploy.cut import Crossing, Cut, Ends

__all__ = ["Crossing", "Cut", "Ends", "MemoryEnds"]
