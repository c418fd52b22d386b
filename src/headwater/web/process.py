"""The process of the dashboard, as whoever starts it sees it: it ends when its standard input does, so never alone."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress

import msgspec

from headwater.errors import RunError
from headwater.processes import wait_or_kill
from headwater.web.settings import Began, Settings

log = logging.getLogger(__name__)

_START_S = 60.0
_END_S = 5.0
_PAUSE_S = 5.0  #: before one that has died is started again
_KEPT_LINES = 20


def check_installed() -> None:
    """Raise a RunError that says what to install, where the dashboard could not be started."""
    if importlib.util.find_spec("nicegui") is None:
        raise RunError("the dashboard needs NiceGUI: pip install 'headwater[web]'")


class Dashboard:
    """Pages in a process of their own; one that dies is started again, and the flows never notice."""

    def __init__(self, settings: Settings) -> None:
        check_installed()
        self._settings = settings
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._closing = threading.Event()
        self._start_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> str:
        """Start it and return where the pages are; RunError where it does not come up."""
        self.url = self._launch()
        self._settings = msgspec.structs.replace(self._settings, port=int(self.url.rpartition(":")[2]))
        threading.Thread(target=self._look_after, name="dashboard", daemon=True).start()
        return self.url

    @property
    def closed(self) -> bool:
        """Whether it was ended on purpose."""
        return self._closing.is_set()

    def close(self) -> None:
        """End it."""
        with self._start_lock:
            self._closing.set()
            process = self._process
        if process is None:
            return
        _hang_up(process)
        wait_or_kill(process, _END_S)

    def _launch(self) -> str:
        with self._start_lock:
            if self._closing.is_set():
                raise RunError("the dashboard is not needed any more")
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headwater.web"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is for who started it
            )
        assert process.stdin is not None
        threading.Thread(target=self._read_log, args=(process,), name="dashboard log", daemon=True).start()
        answer: list[bytes] = []
        listener = threading.Thread(target=lambda: answer.append(_first_line(process)), daemon=True)
        listener.start()
        with suppress(OSError, ValueError):  # it has ended, and says why; or it was closed meanwhile
            process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
            process.stdin.flush()
        listener.join(_START_S)
        try:
            return msgspec.json.decode(answer[0] if answer else b"", type=Began).url
        except msgspec.DecodeError:
            process.kill()
            process.wait()
            reason = self._lines[-1] if self._lines else f"it did not answer within {_START_S:g} s"
            raise RunError(f"the dashboard could not be started: {reason}") from None

    def _look_after(self) -> None:
        while not self._closing.is_set():
            assert self._process is not None
            code = self._process.wait()
            _hang_up(self._process)
            if self._closing.is_set():
                return
            log.warning("the dashboard has ended with exit code %d, and is started again: %s", code, self._last_line())
            self._closing.wait(_PAUSE_S)
            try:
                if not self._closing.is_set():
                    self._launch()
            except RunError as error:
                log.warning("%s", error)

    def _last_line(self) -> str:
        return self._lines[-1] if self._lines else "it said nothing"

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for text in process.stderr:
                self._lines.append(text.decode("utf-8", "replace").rstrip())


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    """End the input of a process, of one that has ended too."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    with process.stdout:
        return process.stdout.readline()
