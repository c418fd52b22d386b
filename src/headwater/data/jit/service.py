"""Gets kernels compiled: by another process, while this one goes on.

A kernel of a module that cannot be imported there, such as one of a script, is compiled here. What cannot be loaded
without Numba, such as all machine code on ARM, is loaded by Numba, from files that the other process made it write.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headwater.data.jit import cache, link
from headwater.data.jit.runtime import UnlinkableError
from headwater.data.jit.signature import Signature
from headwater.errors import one_line

if TYPE_CHECKING:
    from headwater.data.jit.kernel import Kernel

log = logging.getLogger(__name__)

_IDLE_S = 2.0  #: the compiling process ends when nobody has asked for so long: it takes 250 MB
#: The flow goes first, from the moment that this process begins to load the compiler, but not by much: where uncompiled work
#: takes all of a processor, the compiler gets a quarter of it; of 10 it would get a tenth, and that would go on for minutes.
_NICE = 5
_PROGRAM = f"import os; os.nice({_NICE}); from headwater.data.jit.compiler import serve; serve()"

Form = Callable[..., Any]

#: the kernels that this process has loaded or asked for, in that order: modules, names and signatures
uses: dict[tuple[str, str, Signature], None] = {}


def from_cache(kernel: Kernel, signature: Signature) -> Form | None:
    """Load what was compiled before; None if nothing was, or only Numba could load it."""
    if not is_linkable(kernel):
        return None
    code = cache.read(kernel, signature)
    if code is None:
        return None
    try:
        form = link.load(kernel.__name__, code)
        _note(kernel, signature)
        return form
    except UnlinkableError as error:
        log.debug("%r is left to Numba: %s", kernel, error)
        kernel.linkable = False
        return None


def _note(kernel: Kernel, signature: Signature) -> None:
    if _importable(kernel):
        uses[kernel.__module__, kernel.__qualname__, signature] = None


def is_linkable(kernel: Kernel) -> bool:
    """Say whether a kernel's machine code is loaded by ourselves, and not by Numba."""
    return link.LINKABLE and kernel.linkable


def ask(kernel: Kernel, signature: Signature) -> None:
    """Have a kernel compiled in the background; it is used from then on."""
    _request(kernel, signature)


def wait_for(kernel: Kernel, signature: Signature) -> Form:
    """Have a kernel compiled and return its compiled form; raises what Numba has to say."""
    request = _request(kernel, signature)
    request.done.wait()
    if request.error is not None:
        raise request.error
    assert request.form is not None
    return request.form


def is_asked(kernel: Kernel, signature: Signature) -> bool:
    """Say whether a kernel is being compiled for a signature, or cannot be: to ask once more would be in vain."""
    request = _requests.get((id(kernel), signature))
    return request is not None and (request.error is not None or not request.done.is_set())


def waiting() -> int:
    """Return how many kernels are asked for and not there yet."""
    return sum(not request.done.is_set() for request in list(_requests.values()))


def is_compiling(thread: threading.Thread) -> bool:
    """Say whether a thread is the one that gets kernels compiled: while nothing is `waiting`, a fork does it no harm."""
    return thread is _thread


def wait_until_compiled() -> None:
    """Wait until all that was asked for so far is compiled: before something is timed."""
    for request in list(_requests.values()):
        request.done.wait()


def numba_form(kernel: Kernel) -> Form:
    """Return the form that Numba itself chooses among; it loads or compiles one when it is called."""
    from headwater.data.jit.compiler import keeping_dispatcher_of

    return keeping_dispatcher_of(kernel)  # type: ignore[no-any-return]


class _Request:
    def __init__(self, kernel: Kernel, signature: Signature) -> None:
        self.kernel, self.signature = kernel, signature
        self.done = threading.Event()
        self.form: Form | None = None
        self.error: Exception | None = None

    def is_there(self) -> bool:
        """Say whether the kernel is in memory or in the cache; another process may have been quicker."""
        loaded = self.kernel.load(self.signature) is not None
        return loaded or cache.path_for_numba(self.kernel, self.signature).exists()

    def answer(self) -> None:
        """Hand over the compiled form; what is not there, or only for Numba, is compiled or loaded by Numba here."""
        self.form = self.kernel.load(self.signature)
        if self.form is None:
            from headwater.data.jit.compiler import compiled_here

            self.form = compiled_here(self.kernel, self.signature, linkable=is_linkable(self.kernel))
            self.kernel.keep(self.signature, self.form)
        self.done.set()

    def fail(self, error: Exception) -> None:
        """Say why there is no compiled form."""
        self.error = error
        self.done.set()

    def line(self) -> str:
        kernel = self.kernel
        fields = {"module": kernel.__module__, "name": kernel.__qualname__, "source": cache.source_of(kernel)}
        return json.dumps(fields | {"signature": self.signature, "linkable": is_linkable(kernel)}) + "\n"


_lock = threading.Lock()
_requests: dict[tuple[int, Signature], _Request] = {}
_queue: queue.SimpleQueue[_Request] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_running: list[subprocess.Popen[str]] = []


def _request(kernel: Kernel, signature: Signature) -> _Request:
    global _thread
    with _lock:
        key = id(kernel), signature
        request = _requests.get(key)
        if request is None or request.error is not None:
            request = _requests[key] = _Request(kernel, signature)
            _note(kernel, signature)
            _queue.put(request)
            if _thread is None or not _thread.is_alive():
                _thread = threading.Thread(target=_work, name="compile", daemon=True)
                _thread.start()
        return request


def _work() -> None:
    """Answer requests, one after the other, with one process for those that come close together."""
    child: _Child | None = None
    while True:
        try:
            request = _queue.get(timeout=_IDLE_S if child else None)
        except queue.Empty:
            assert child is not None
            child.close()
            child = None
            continue
        try:
            if not request.is_there() and _importable(request.kernel):
                child = child or _Child()
                child.compiles(request)
                if not request.is_there() and not is_linkable(request.kernel):
                    child.compiles(request)  # what it made could not be linked after all: once more, for Numba to load
            request.answer()
        except Exception as error:  # whoever waits for the kernel is told, and does not wait for ever
            is_first = all(each.error is None for each in list(_requests.values()))
            message = "%r cannot be compiled, and flows run it as it is, which is slow: %.200s"
            log.log(logging.WARNING if is_first else logging.DEBUG, message, request.kernel, one_line(str(error)))
            request.fail(error)


class _Child:
    """The process that compiles. What it was asked for it finishes, even if this process ends before."""

    def __init__(self) -> None:
        # new code for an old folder, or a folder of this process alone: both must see the same one
        environment = os.environ | {"HEADWATER_CACHE": str(cache.folder().parent.parent)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        _running.append(self._process)
        self._send(json.dumps(sys.path) + "\n")

    def compiles(self, request: _Request) -> None:
        """Send a request and wait until it is done, or found that it cannot be done there."""
        assert self._process.stdout is not None
        self._send(request.line())
        answer = self._process.stdout.readline()
        if answer.strip() != "done":
            log.debug("%r was not compiled apart: %s", request.kernel, answer.strip() or "the process ended")

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def close(self) -> None:
        """Let the process end."""
        with suppress(OSError):
            self._process.communicate()
        _running.remove(self._process)


@atexit.register
def _leave() -> None:
    for process in _running:
        process.returncode = 0  # it ends by itself when it has done what it was asked for: no need to complain of it


def _importable(kernel: Kernel) -> bool:
    """Say whether another process finds the kernel by its name."""
    if kernel.__module__ == "__main__":
        return False
    module = sys.modules.get(kernel.__module__)
    if getattr(module, "__spec__", None) is None or getattr(module, kernel.__qualname__, None) is not kernel:
        return False
    try:
        return importlib.util.find_spec(kernel.__module__) is not None
    except (ImportError, ValueError):
        return False


def _forget() -> None:
    """In a process that was forked: the thread and its queue are the parent's."""
    global _lock, _queue, _thread
    _lock, _queue, _thread = threading.Lock(), queue.SimpleQueue(), None
    _requests.clear()
    _running.clear()


os.register_at_fork(after_in_child=_forget)
