"""How many instances each step of a flow has: what EdgeWise used, unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import FlowError, listed, suggestion


def counted(usual: Mapping[str, int], chosen: Mapping[str, int] | None) -> dict[str, int]:
    """Return the usual numbers of instances with the wanted ones in their place.

    >>> counted({"parse": 1, "publish": 2}, {"parse": 3})
    {'parse': 3, 'publish': 2}
    """
    for name in chosen or {}:
        if name not in usual:
            hint = suggestion(name, usual)
            raise FlowError(f"there is no step {name!r} to set instances of; steps are {listed(usual)}{hint}")
    return {**usual, **(chosen or {})}
