"""What a lane is born with that is forked from a warm parent: the order for it, who keeps it, and how often it has died.

A process that nobody keeps, such as one that calls `rate.start` itself, has none of this.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from contextlib import suppress

import msgspec

FDS = 5
"""What comes with an order: standard input, output and error, a pipe from the keeper and one to it."""


class KeptBy(msgspec.Struct, frozen=True):
    """Who asked for a lane, and starts it again if it dies; process 0 where nobody does."""

    pid: int
    deaths: int = 0  #: of the lanes before this one
    holds: bool = False  #: whether its program sees itself to signals that have come while it was forked


class Order(msgspec.Struct):
    """What a lane is to be: a function of a module, the arguments it finds, and the circumstances of who asked."""

    program: str  #: such as "headwater.cli:main"
    arguments: list[str]
    folder: str
    path: list[str]
    environment: dict[str, str]
    umask: int
    processors: list[int]
    nice: int
    limits: dict[str, tuple[int, int]]  #: by their names in `resource`, soft and hard
    kept: KeptBy


keeper: KeptBy | None = None
"""Of this process; None where it is no lane that somebody keeps."""

_to_keeper = -1


def become(by: KeptBy, from_keeper: int, to_keeper: int) -> None:
    """Be a lane that is kept, and stop in good order as soon as its keeper is gone.

    The keeper never writes to its pipe, so that the system sends SIGTERM when it ends. That needs no thread, beside which a
    lane could not fork others.
    """
    global keeper, _to_keeper
    keeper, _to_keeper = by, to_keeper
    for each in (from_keeper, to_keeper):
        os.set_inheritable(each, False)
    fcntl.fcntl(from_keeper, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(from_keeper, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(from_keeper, fcntl.F_SETFL, fcntl.fcntl(from_keeper, fcntl.F_GETFL) | os.O_ASYNC)
    looking = select.poll()
    looking.register(from_keeper, select.POLLIN)
    if looking.poll(0):  # gone before anybody could tell us
        os.kill(os.getpid(), signal.SIGTERM)


def last_word(status: int) -> None:
    """Tell the keeper that this lane ends by itself: one that ends without a word has died."""
    with suppress(OSError):
        os.write(_to_keeper, f"{status}\n".encode())
