"""The command `headwater`, and `python -m headwater`: the command line."""

import io
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Load the command line and run it; until that is loaded, Ctrl-C ends it as it ends any program, without a traceback.

    SIGTERM waits until then: what has asked for a promise passes it on.
    """
    _open_closed_streams()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from headwater.cli import main as run

    signal.signal(signal.SIGINT, usual)
    run()


def _open_closed_streams() -> None:
    """Put something in the place of standard streams that are closed: the next file would get their numbers, and our words.

    Standard input is at its end then, and what is said goes nowhere. Records for standard output are not written to a hole:
    where it was closed, nothing can be written.
    """
    for number, name, how in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, how)
            os.dup2(opened, number)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(_Closed(number), "utf-8"))


class _Closed(io.RawIOBase):
    """A standard stream that was closed: has no input, and takes whatever commands say."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def readable(self) -> bool:
        return self._number == 0

    def writable(self) -> bool:
        return self._number > 0

    def readinto(self, buffer: object) -> int:
        return 0

    def write(self, data: Any) -> int:
        return len(memoryview(data).cast("B"))


if __name__ == "__main__":
    main()
