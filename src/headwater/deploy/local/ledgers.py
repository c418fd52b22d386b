"""Ledgers of promises of sites that are played on this machine: each in a runtime folder of its own, which goes with it."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from headwater.errors import RateError
from headwater.rate import process
from headwater.rate.client import connected
from headwater.rate.home import own_folder
from headwater.rate.peer import peer

log = logging.getLogger("headwater.up")

_END_S = 10.0  #: for a supervisor to end
_LOOK_S = 0.02


def ledger_of(place: Path) -> Path:
    """Return the runtime folder of a site, whose promises are no other site's: by a short path, as sockets need it."""
    return own_folder() / f"up-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"


def remove_ledger(home: Path) -> None:
    """End the supervisor of a site that is no more, if it is at work, and remove its folder."""
    try:
        _end_supervisor(home)
    except RateError as error:  # such as one that is stopped: the folder is what it would go on with
        log.warning("a ledger of promises stays: %s", error)
        return
    shutil.rmtree(home, ignore_errors=True)


def _end_supervisor(home: Path) -> None:
    line = connected(home)
    if line is None:
        return
    with line:
        pid, _ = peer(line)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until_s = time.monotonic() + _END_S
    while process.began(pid) is not None:
        if time.monotonic() > until_s:
            raise RateError(f"the supervisor in {home} (process {pid}) has not ended within {_END_S:g} s")
        time.sleep(_LOOK_S)
