"""What the parts of a query are called in Spark's plans and UI: by the steps that run in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def title_of(steps: Iterable[str]) -> str:
    """Return what steps that run one after the other are called together.

    >>> title_of(["levels", "high", "means"])
    'levels, high, means'
    """
    return ", ".join(steps)


def titled(function: _Function, title: str) -> _Function:
    """Give a function that Spark runs a name that its plans show."""
    if title:
        function.__name__ = title
    return function
