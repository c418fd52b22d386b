"""What a flow was at one moment, whichever runner ran it: the form in which one hands it to the other.

Nothing is under way in it: what was has been processed, or waits at the sinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.data.batch import NO_WATERMARK, Batch
from headwater.operators.operator import Operator


@dataclass(slots=True)
class StepMoment:
    """A step: one operator with the state of all its keys, and how far time has come behind it."""

    operator: Operator
    watermark: int = NO_WATERMARK
    ended: bool = False  #: what it had to say at the end is said


@dataclass(slots=True)
class Moment:
    """All steps of a flow, its sources and its sinks."""

    part: int  #: the last part of what sinks wrote that counts
    sinks: Path  #: the folder in which sinks have their notes
    steps: dict[str, StepMoment] = field(default_factory=dict)  #: those between sources and sinks
    #: how far each source was read, as its reader tells it; of one whose sender waits, the next entry of its log
    positions: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)  #: of those sources
    waiting: dict[str, list[Batch]] = field(default_factory=dict)  #: what no sink has yet, in order
    #: what had come from a source whose sender has forgotten it, and no step has yet: records, and words about event time
    arrived: dict[str, list[Batch]] = field(default_factory=dict)
    source_watermarks: dict[str, int] = field(default_factory=dict)  #: how far time has come at sources that tell it

    def watermarks(self) -> Mapping[str, int]:
        """Return how far time has come behind each step, and behind sources that tell it."""
        return {**self.source_watermarks, **{name: step.watermark for name, step in self.steps.items()}}
