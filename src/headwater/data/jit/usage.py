"""Which kernels some work has used, kept beside them: the next time they are loaded before it begins.

To load a kernel takes some milliseconds, which the first records would wait for.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import sys

from headwater.data.jit import cache, service
from headwater.data.jit.kernel import COMPILED, Kernel
from headwater.data.jit.signature import Signature, hashable

log = logging.getLogger(__name__)

_OURS = f"{__name__.partition('.')[0]}."  #: the package whose modules stay as they are while it runs
Use = tuple[str, str, Signature]  #: module and name of a kernel, and what it was called with


class Usage:
    """The kernels of one kind of work, known by a name; what is new since this was made is added by `save`."""

    def __init__(self, work: str) -> None:
        self._path = cache.folder() / f"used-{hashlib.sha256(work.encode()).hexdigest()[:20]}" if COMPILED else None
        self._before = len(service.uses)
        self._uses: list[Use] = []

    def load(self) -> None:
        """Load what was used before and is in the cache; nothing is compiled."""
        entry = None if self._path is None else cache.read_file(self._path)
        for module, name, signature in json.loads(entry[1]) if entry else ():
            use = module, name, hashable(signature)
            try:
                _load(*use)
            except Exception as error:  # it is gone, or has changed: work does not depend on what was used before
                log.debug("%s.%s was used before, and cannot be loaded: %s", module, name, error)
            else:
                self._uses.append(use)

    def save(self) -> None:
        """Remember what was used, if that is more than before; cheap where it is not."""
        uses = list(service.uses)
        new = [use for use in uses[self._before :] if use not in self._uses]
        self._before = len(uses)
        if self._path is not None and new:
            self._uses += new
            cache.write_file(self._path, {}, json.dumps(self._uses).encode())


def _load(module: str, name: str, signature: Signature) -> None:
    kernel: Kernel = getattr(importlib.import_module(module), name)
    if kernel.load(signature) is None and cache.path_for_numba(kernel, signature).exists():
        service.wait_for(kernel, signature)  # which has Numba load it


def load_recent(works: int = 30) -> None:
    """Load the kernels that the works of late have used, of our own modules and of those that are imported already.

    Neither Numba nor a thread is started for that, and nobody else's module is imported: it may change.
    """
    if not COMPILED:
        return
    by_age = sorted(cache.folder().glob("used-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    entries = [cache.read_file(path) for path in by_age[:works]]
    uses = {(m, n, hashable(s)) for entry in entries if entry for m, n, s in json.loads(entry[1])}
    for module, name, signature in uses:
        if module.startswith(_OURS) or module in sys.modules:
            try:
                getattr(importlib.import_module(module), name).load(signature)
            except Exception as error:
                log.debug("%s.%s was used before, and cannot be loaded: %s", module, name, error)
