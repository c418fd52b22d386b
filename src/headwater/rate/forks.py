"""Has a process forked from a warm parent, which is started where there is none; and waits for how it ends."""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import headwater
from headwater.errors import RateError
from headwater.processes import ending
from headwater.rate import process
from headwater.rate.fork_context import KeptBy, Order
from headwater.rate.home import LOG, own_folder
from headwater.rate.resident import started

_START_S = 60.0
_ANSWER_S = (
    10.0  #: how long a parent may take for a word; one that was stopped, or is swapped out, says nothing for ever
)
_LOOK_S = 0.05
#: variables that are read when Python or a package is loaded, or that say where kernels are: a parent has them for good
_EARLY = (
    "HEADWATER_CACHE",
    "HOME",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "TZ",
    "XDG_CACHE_HOME",
)


class Ended(NamedTuple):
    """How a process that was forked has ended."""

    status: int | None  #: below 0 the signal that killed it; None where nobody is left to tell
    by_itself: bool  #: whether it said so; one that ends without a word has died

    def __str__(self) -> str:
        if self.status is None:
            return "died"
        return ending(self.status) + ("" if self.by_itself or self.status < 0 else " without a last word")


class ForkedProcess:
    """A process that was forked for us, and is no child of ours."""

    def __init__(self, connection: socket.socket, order: bytes, fds: tuple[int, int, int]) -> None:
        """Raises OSError, or EOFError, where the parent does not do it."""
        self._connection = connection
        connection.settimeout(_ANSWER_S)
        from_us, self._lifeline = os.pipe()  # open as long as we live: the process ends with us
        last_word, to_us = os.pipe()
        self._last_word = os.fdopen(last_word, "rb")
        try:
            socket.send_fds(connection, [f"{len(order)}\n".encode()], [*fds, from_us, to_us])
            connection.sendall(order)
        finally:
            os.close(from_us)
            os.close(to_us)
        self._parent = connection.makefile("rb")
        line = self._parent.readline()
        if not line:
            raise EOFError
        self.pid = int(line)
        self._began = process.began(self.pid)

    def wait(self) -> Ended:
        """Wait for its end, and return how that was."""
        last_word = self._last_word.readline()
        status = last_word or self._how_it_died()
        while self._began is not None and process.began(self.pid) == self._began:  # its parent may be gone before it is
            time.sleep(_LOOK_S)
        for each in (self._parent, self._connection, self._last_word):
            each.close()
        os.close(self._lifeline)
        return Ended(int(status) if status else None, by_itself=bool(last_word))

    def _how_it_died(self) -> bytes:
        """Return what its parent says of one that could not say so itself; nothing where that is gone, or silent."""
        try:
            return self._parent.readline()
        except OSError:
            return b""


def forked(
    program: str,
    arguments: Sequence[str],
    keeper: KeptBy,
    home: Path | None = None,
    fds: tuple[int, int, int] = (0, 1, 2),
    environment: Mapping[str, str] | None = None,
) -> ForkedProcess:
    """Have a function of a module run, with these arguments, in a process forked from a warm parent.

    It has our folder, limits and environment, with some of that otherwise, and our standard descriptors unless others are
    given. RateError says why it cannot be had.
    """
    at = (home or own_folder()) / f"lanes-{_sign()}.sock"
    umask = os.umask(0)
    os.umask(umask)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    order = Order(
        program,
        list(arguments),
        str(Path.cwd()),
        sys.path,
        {**os.environ, **(environment or {})},
        umask,
        sorted(os.sched_getaffinity(0)),
        os.nice(0),
        limits,
        keeper,
    )
    text = msgspec.json.encode(order)
    for last in (False, True):  # one that is about to go home may take a connection and leave
        try:
            return ForkedProcess(_connected(at) or _started(at), text, fds)
        except (OSError, EOFError) as error:
            if last:
                raise RateError(f"the warm parent at {at} forks nothing: {error or 'it hung up'}") from None
    raise AssertionError("unreachable")


def _connected(at: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(at))
    except OSError:
        connection.close()
        return None
    return connection


def _started(at: Path) -> socket.socket:
    log = at.parent / LOG
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "from headwater.rate.warm import main; main()"
    line = started(code, [str(at)], log, environment, lambda: _connected(at), _START_S)
    if line is None:
        raise RateError(f"no warm parent of lanes could be started; what it said is in {log}")
    return line


def _sign() -> str:
    """Return what tells ways to run Python apart: a parent of another could not be ours."""
    package = Path(headwater.__file__).parent
    changed = max(each.stat().st_mtime_ns for each in package.rglob("*.py"))
    path = [each for each in sys.path if each and each != str(Path.cwd())]
    early = sorted((name, value) for name, value in os.environ.items() if name.startswith(_EARLY))
    group = Path("/proc/self/cgroup").read_text()
    traits = (sys.executable, path, str(package), changed, early, group, os.getuid())
    return hashlib.sha256(repr(traits).encode()).hexdigest()[:8]
