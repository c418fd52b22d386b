"""What can be chosen for a run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from headwater.data.column import Array
from headwater.errors import RunError, listed, suggestion
from headwater.flow.duration import above_zero, microseconds_of
from headwater.flow.ranges import Sizes

#: By whose rules the first steps of a flow run: ours, or those of Spark's own operators, which take less time
Meaning = Literal["headwater", "spark"]
MEANINGS: tuple[Meaning, ...] = get_args(Meaning)


def check_meaning(meaning: object) -> None:
    """Raise for a meaning that there is not."""
    if meaning not in MEANINGS:
        hint = suggestion(str(meaning), MEANINGS)
        raise RunError(f"there is no meaning {meaning!r}; a flow means what {listed(MEANINGS)} means by it{hint}")


def check_buckets(buckets: object) -> None:
    """Raise for a number of buckets that there cannot be."""
    if buckets is not None and (not isinstance(buckets, int) or buckets < 1):
        raise RunError(f"buckets must be a whole number of at least 1; got {buckets!r}")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a flow is run on Spark; every field has a default that works."""

    #: where it runs: `local[*]`, `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`
    master: str | None = None
    #: Spark's own settings, which go before ours
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: the folder from which a later run goes on where this one was stopped; None keeps nothing
    checkpoint: str | Path | None = None
    #: into how many parts keys are spread, fixed for the life of a checkpoint; Spark's shuffle partitions by default
    buckets: int | None = None
    #: how much of a source is read at once; large micro-batches by default
    sizes: Sizes | None = None
    #: how often a micro-batch begins, at most; at once after the last one by default
    every: str = "0 seconds"
    #: about how long a micro-batch should take where more waits than it may read, such as `2 s`: it then reads less, up to
    #: `sizes`; None always reads as much as `sizes` allow
    target: str | None = None
    #: stop reading after this long; None reads to the end
    seconds: float | None = None
    #: take what is there now and end, even if a source could bring more
    available_now: bool = False
    #: `spark` has Spark's own operators run expressions, windows and joins next to a source that Spark reads, and means by
    #: them what Spark does; else only what means exactly the same does
    meaning: Meaning = "headwater"
    #: called with the moments at which records were created that a sink has just taken
    on_written: Callable[[Array], None] | None = None
    #: how often a sample of all measurements is kept
    sample_s: float = 1.0

    def __post_init__(self) -> None:
        check_meaning(self.meaning)
        for name in ("seconds", "sample_s"):
            above_zero(name, getattr(self, name))
        if self.target is not None:
            microseconds_of("target", self.target)
        check_buckets(self.buckets)

    @property
    def target_s(self) -> float | None:
        """The target in seconds."""
        return None if self.target is None else microseconds_of("target", self.target) / 1e6
