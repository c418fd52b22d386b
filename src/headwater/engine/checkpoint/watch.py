"""Notices that somebody has deleted checkpoints under a run."""

from __future__ import annotations

import logging

from headwater.engine.checkpoint.chain import Chain
from headwater.engine.checkpoint.coordinator import Coordinator
from headwater.engine.checkpoint.store import Store
from headwater.io.lock import Lock

log = logging.getLogger(__name__)


def mend_deleted(store: Store, chain: Chain, coordinator: Coordinator, lock: Lock | None) -> None:
    """Have a new checkpoint made at once, of all that there is, where the last one is gone.

    Until that is complete, a run that is killed begins anew. Raises RunError where another run has taken the folder.
    """
    if chain.last is None or not store.lacks(chain.last):
        return
    log.warning(
        "checkpoint %s was deleted or moved away while the flow runs; a new one is made, of all that there is",
        store.folder,
    )
    chain.broken()
    coordinator.hurry()
    if lock is not None:
        lock.renew()
