"""What can be wished of a coordinator and of plans, as it is sent."""

from __future__ import annotations

import msgspec


class MoveWish(msgspec.Struct, forbid_unknown_fields=True):
    """Steps, and where they should run."""

    steps: list[str]
    site: str


class DrainWish(msgspec.Struct, forbid_unknown_fields=True):
    """A site that should run nothing but what cannot be elsewhere."""

    site: str
    to: str = ""  #: where its steps should go; the policy chooses if it is not said


class OpenWish(msgspec.Struct, forbid_unknown_fields=True):
    """A site that was drained."""

    site: str


class PlanWish(msgspec.Struct, forbid_unknown_fields=True):
    """A flow to be placed on a net."""

    flow: str
    net: str
    objective: str = ""  #: that of the model of time, if none is said


class FrontWish(msgspec.Struct, forbid_unknown_fields=True):
    """Two measures, of which less of the one costs the other."""

    flow: str
    net: str
    one: str
    other: str


class TryWish(msgspec.Struct, forbid_unknown_fields=True):
    """A placement by hand."""

    flow: str
    net: str
    placement: dict[str, str]  #: step → device
    objective: str = ""


class RehearsalWish(msgspec.Struct, forbid_unknown_fields=True):
    """A placement to be played in virtual time."""

    flow: str
    net: str
    placement: dict[str, str]
    seconds: float = 10.0
