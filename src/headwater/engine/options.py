"""What can be chosen for a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from headwater.cores import whole_cores
from headwater.engine.policy import DEFAULT, policy_named
from headwater.engine.scheduler import Take
from headwater.errors import RunError, listed, suggestion
from headwater.flow.duration import Duration, above_zero, microseconds

LINGER: Literal["auto"] = "auto"
#: RIoTBench ETL at 1,000 messages/s takes two thirds of the processor time that it takes with 10 ms, a third of what it
#: takes with 5. Where many records gather, a longer pause saves little, and they wait for each other to be processed too.
_FEW_S, _MANY_S, _PLENTY_S = 0.015, 0.010, 0.006
HANG = "10 s"
_LONGEST_LINGER_S = 1.0  #: a source must see within reason that the run is stopping

WhenFull = Literal["block", "spill", "shed"]
OnHang = Literal["warn", "stop"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a flow is run; every field has a default that works."""

    policy: str = DEFAULT
    #: how many of its waiting records a step takes in one activation: 'all', 'half', or at most this many
    take: Take = "all"
    #: worker threads; as many as there are cores to use by default, of which as many are at work as are of use. There is one
    #: more for each that does not come back for a second while others wait
    workers: int = field(default_factory=whole_cores)
    #: bounds of each queue
    queue_records: int = 10_000
    queue_bytes: int = 64 * 2**20
    #: what a source does when a queue is at its bound
    when_full: WhenFull = "block"
    #: where spilled batches go, and how much room they may take; a temporary folder by default
    spill_dir: str | None = None
    spill_bytes: int | None = None
    #: records that a source hands over at once, at most; up to 2,000 where more wait to be read, 8,000 where those came by
    #: themselves
    chunk: int = 256
    #: how long records that come by themselves are left to gather before they are read; 0 s for the lowest latency,
    #: 'auto' for 15 ms where few come and 10 down to 6 ms where many do
    linger: Duration | Literal["auto"] = LINGER
    #: stop reading after this long; None reads to the end
    seconds: float | None = None
    #: how often a sample of all measurements is kept
    sample_s: float = 1.0
    measure: bool = True
    #: the folder in which checkpoints are kept, and from which a later run goes on; None keeps none
    checkpoint: str | Path | None = None
    every: Duration = "5 s"  #: how often one is made
    #: whether a checkpoint may have state of steps that the flow no longer has
    allow_dropped_state: bool = False
    #: an activation of a step that takes longer hangs: that is told, or ends the run
    hang: Duration = HANG
    on_hang: OnHang = "warn"
    #: once a run is aborted: how long a step may take to come back before the run is over without it
    grace_s: float = 5.0

    @property
    def linger_s(self) -> float:
        """`linger` in seconds, where few records come."""
        return _FEW_S if self.linger == "auto" else microseconds(self.linger) / 1e6

    @property
    def busy_linger_s(self) -> float:
        """`linger` in seconds, where many records come."""
        return _MANY_S if self.linger == "auto" else self.linger_s

    @property
    def least_linger_s(self) -> float:
        """`linger` in seconds, where more records come than large batches need."""
        return _PLENTY_S if self.linger == "auto" else self.linger_s

    @property
    def hang_s(self) -> float:
        """`hang` in seconds."""
        return microseconds(self.hang) / 1e6

    @property
    def every_s(self) -> float:
        """How often a checkpoint is made."""
        return microseconds(self.every) / 1e6

    def __post_init__(self) -> None:
        policy_named(self.policy)
        if self.linger_s > _LONGEST_LINGER_S:
            raise RunError(
                f"linger is how long records gather before they are read, {_LONGEST_LINGER_S:g} s at most; "
                f"got {self.linger!r}"
            )
        for name, least in (("workers", 1), ("queue_records", 1), ("queue_bytes", 1), ("chunk", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise RunError(f"{name} must be a whole number of at least {least}; got {value!r}")
        for name in ("seconds", "sample_s", "grace_s"):
            above_zero(name, getattr(self, name))
        if self.every_s <= 0:
            raise RunError(f"every is the time between two checkpoints, above 0; got {self.every!r}")
        if self.hang_s <= 0:
            raise RunError(f"hang is how long a step may be at the same records, above 0; got {self.hang!r}")
        if self.spill_bytes is not None and self.spill_bytes < 0:
            raise RunError(f"spill_bytes is 0 or more bytes; got {self.spill_bytes!r}")
        if self.take not in ("all", "half") and not (isinstance(self.take, int) and self.take >= 1):
            raise RunError(f"take must be 'all', 'half' or a number of records above 0; got {self.take!r}")
        for name, choices in (("when_full", get_args(WhenFull)), ("on_hang", get_args(OnHang))):
            value = getattr(self, name)
            if value not in choices:
                raise RunError(f"{name} must be one of {listed(choices)}; got {value!r}{suggestion(value, choices)}")
