"""Keeps what only Numba can load: all machine code where there is no linker of ours, and kinds of arguments we do not know.

Numba's own cache has one index per function, which processes that start together overwrite for each other, and looks for
changes in the file of the function alone. Here each form has a file of its own, named after all that it was compiled from.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from headwater.data.jit import cache

if TYPE_CHECKING:
    from headwater.data.jit.kernel import Kernel


def load(path: Path, context: Any) -> Any:
    """Return what was kept in a file, ready to be called; None if there is nothing, or it is damaged."""
    entry = cache.read_file(path)
    if entry is None:
        return None
    parts = pickle.loads(
        entry[1]
    )  # from a folder that only we may write to, and no less to be trusted than machine code
    return CompileResult._rebuild(context, *parts)


def save(path: Path, result: Any) -> bool:
    """Keep what Numba has compiled, unless it holds addresses of this process."""
    if any(not each.can_cache for each in result.lifted) or result.library.has_dynamic_globals:
        return False
    cache.write_file(path, {}, dumps(result._reduce()))
    return True


class NumbaCache(_Cache):  # type: ignore[misc]
    """What Numba asks, by its own types, when a kernel is called with arguments that have no signature of ours."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def cache_path(self) -> str:
        """The folder, as Numba tells it."""
        return str(cache.folder())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for some types of arguments, or None."""
        target_context.refresh()
        return load(cache.path_for_numba(self._kernel, sig), target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        save(cache.path_for_numba(self._kernel, sig), data)

    def enable(self) -> None:
        """Numba may switch its caches off and on; this one is always on."""

    def disable(self) -> None:
        """See `enable`."""

    def flush(self) -> None:
        """Nothing is held back."""
