"""Notifies systemd that we are ready, alive, stopping: a datagram each; none where systemd did not start us."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from headwater.errors import one_line


class Notifier:
    """Tells the service manager how we fare, in the words of sd_notify."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "")
        #: how often it must hear that we live; None where it does not listen for that
        self.watchdog_s = int(usec) / 1e6 if ours and usec.isdigit() and int(usec) else None
        self._fed_s = 0.0

    def ready(self, status: str) -> None:
        """Say that the service is up."""
        self._tell("READY=1", f"STATUS={one_line(status)}")

    def status(self, status: str) -> None:
        """Say in a line what we are doing."""
        self._tell(f"STATUS={one_line(status)}")

    def stopping(self) -> None:
        """Say that the service is stopping."""
        self._tell("STOPPING=1", "STATUS=stopping all flows")

    def alive(self) -> None:
        """Send a heartbeat, as often as is needed."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s - self._fed_s >= self.watchdog_s / 3:
            self._fed_s = now_s
            self._tell("WATCHDOG=1")

    def _tell(self, *words: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.connect(address)
                to.sendall("\n".join(words).encode())
        except OSError:  # whoever started us is gone, or does not listen: no reason to end
            pass
