"""Records that a sink refuses when nobody is left to make dead letters of them: a log of their own keeps them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.flow.endpoints import Refused
from headwater.io.log import Bounds, Log

log = logging.getLogger(__name__)

_BOUNDS = Bounds(64 * 10**6, full="drop oldest")


def keep_refused(folder: Path, name: str, batch: Batch, refused: Refused) -> None:
    """Keep what a sink will never take, with its reasons, in the folder `refused`, and say so."""
    rows = sorted(refused)
    reasons = [refused[row] for row in rows]
    log.warning("%s refuses %d records: %s; they are kept in %s", name, len(rows), reasons[0], folder / "refused")
    kept = Log(folder / "refused", _BOUNDS)
    try:
        head = msgspec.msgpack.encode(reasons)
        kept.append(len(head).to_bytes(4, "little") + head + pack(batch.take(np.array(rows))), records=len(rows))
        if kept.dropped:
            dropped = sum(kept.dropped.values())
            log.error("%d records that were refused before are dropped: %s is full", dropped, folder / "refused")
    finally:
        kept.close()
