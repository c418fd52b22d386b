"""What a thread has done with its time, as the operating system tells."""

from __future__ import annotations

import os
import threading
import time


class ThreadTime:
    """Tells how long the thread that made it has computed, or could have if other processes had left it a processor.

    What is missing from that to the time that has passed, it spent waiting: for a lock, the interpreter's own included, or
    for something outside.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:  # not Linux, or a kernel that does not keep it
            self._file = -1

    def able_ns(self) -> int:
        """Return the nanoseconds computed plus those spent ready to, both since the thread began."""
        delayed = int(os.pread(self._file, 64, 0).split()[1]) if self._file >= 0 else 0
        return time.thread_time_ns() + delayed

    def close(self) -> None:
        """Release what was opened."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
