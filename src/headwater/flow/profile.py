"""Profiles: what each step costs, measured or given, as placement and contracts read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headwater.errors import FlowError


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What one step costs on the device it was measured on."""

    #: seconds of one core per record
    time_s: float
    #: seconds per activation, whatever the number of records
    overhead_s: float = 0.0
    #: records out per record in, for each output
    selectivity: Mapping[str, float] = field(default_factory=lambda: {"out": 1.0})
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    #: bytes of state kept when the measurement ended
    state_bytes: int = 0
    #: 'expressions', 'compiled', 'python' (a function per record) or 'io'
    form: str = "expressions"

    def __post_init__(self) -> None:
        for name in ("time_s", "overhead_s", "bytes_in", "bytes_out", "state_bytes"):
            value = getattr(self, name)
            if not value >= 0:
                raise FlowError(f"profile: {name} must be 0 or more; got {value}")


@dataclass(frozen=True, slots=True)
class StepDemand:
    """What a step needs where a rate is promised: as Storm-RTS reckons it, and as it costs when it runs once a tick."""

    #: μ: records that come here for each that the sources bring
    scale: float
    #: b: records of an invocation, so many that 70 % of its time goes to them
    batch: int
    #: s: cores of an invocation, so few that it takes 20 % longer than with a whole one
    cores: float
    #: tmax: the longest that such an invocation took
    limit_s: float
    #: processor seconds per record, and per tick whatever the number of records, with a cold cache
    record_s: float
    tick_s: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What a flow needs where a rate is promised, measured at one rate and good for others near it."""

    rate_hz: float
    #: how long its sources let records gather, so that each step runs once in that time
    tick_s: float
    #: e: processor seconds of the engine itself per tick, on this machine
    engine_s: float
    steps: Mapping[str, StepDemand]
    #: what a tick costs, steps' and engine's, grows with how long it is to this power: caches grow cold meanwhile
    cooling: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The profiles of a flow's steps, and where they were measured."""

    flow: str
    device: str
    steps: Mapping[str, StepProfile]
    version: int = 1
    #: what `headwater profile --contract` adds
    demand: Demand | None = None

    def of(self, step: str) -> StepProfile:
        """Return a step's profile, or say that it is missing."""
        if step not in self.steps:
            raise FlowError(
                f"profile of flow {self.flow!r} has no step {step!r}; measured steps are {', '.join(self.steps)}; "
                "run 'headwater profile' again after changing a flow"
            )
        return self.steps[step]

    def write(self, path: Path) -> None:
        """Write the profile as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a profile that `write` wrote."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            raise FlowError(f"there is no profile file {str(path)!r}; make one with 'headwater profile FLOW'") from None
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise FlowError(f"cannot read profile {str(path)!r}: {error}") from None
