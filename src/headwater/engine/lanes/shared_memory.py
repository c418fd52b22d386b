"""What lanes share of the memory of the process that they are forked from."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shared_objects() -> Iterator[None]:
    """Have whoever is forked meanwhile share all objects that are there, for as long as nobody touches them.

    A program that has frozen its own objects is let alone: most are shared already, and to unfreeze ours would unfreeze all.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
