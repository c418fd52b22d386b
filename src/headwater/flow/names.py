"""What a function is called in pictures and accounts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any


def name_of(function: Callable[..., Any]) -> str:
    """Return what to call a function in a picture: its name, or the line where it stands if it has none.

    >>> name_of(partial(int, base=2))
    'int'
    """
    if isinstance(function, partial):
        return name_of(function.func)
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if name != "<lambda>" or code is None:
        return str(name)
    return f"lambda of {PurePath(code.co_filename).name}:{code.co_firstlineno}"
