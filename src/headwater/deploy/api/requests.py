"""What can be asked of a coordinator and of plans, as it is sent."""

from __future__ import annotations

import msgspec


class MoveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Steps, and where they should run."""

    steps: list[str]
    site: str


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A site that should run nothing but what cannot be elsewhere."""

    site: str
    to: str = ""  #: where its steps should go; the policy chooses if it is not said


class OpenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A site that was drained."""

    site: str


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A flow to be placed on a net."""

    flow: str
    net: str
    objective: str = ""  #: that of the model of time, if none is said


class FrontRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Two measures, of which less of the one costs the other."""

    flow: str
    net: str
    one: str
    other: str


class TryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A placement by hand."""

    flow: str
    net: str
    placement: dict[str, str]  #: step → device
    objective: str = ""


class RehearsalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A placement to be played in virtual time."""

    flow: str
    net: str
    placement: dict[str, str]
    seconds: float = 10.0
