"""Records that a sink refuses when nobody is left to make dead letters of them: they are kept as such all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from headwater.data.batch import Batch
from headwater.flow.endpoints import Refused
from headwater.io.dead import DeadLetterFolder
from headwater.io.log import Bounds
from headwater.operators.operator import dead_letters

log = logging.getLogger(__name__)

_BOUNDS = Bounds(64 * 10**6, full="drop oldest")


def keep_refused(folder: Path, sink: str, batch: Batch, refusals: Refused) -> None:
    """Keep what a sink will never take, with its reasons, in the folder `refused`, and say so.

    They are dead letters of the sink, by what it is called: nobody here knows the name of its step.
    """
    rows, store = sorted(refusals), DeadLetterFolder(folder / "refused", _BOUNDS)
    reasons = [refusals[row] for row in rows]
    log.warning("%s refuses %d records: %s; see headwater dead list %s", sink, len(rows), reasons[0], store)
    writer = store.writer()
    try:
        writer.write(dead_letters(sink, reasons, batch.take(np.array(rows))))
        if dropped := sum(writer.dropped.values()):
            log.error("%d records that were refused before are dropped: %s is full", dropped, store)
    finally:
        writer.close()
