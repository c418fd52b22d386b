"""What a process that was just forked does first, whoever forked it."""

from __future__ import annotations

import os
import signal


def let_go_of_signals() -> None:
    """Undo what the parent does about signals: a forked process leaves Ctrl-C and SIGTERM to its parent.

    Ctrl-C reaches all processes of a terminal, and SIGTERM all of a service or of a group, of which the first decides what
    they mean. And whoever waits for signals of the parent in a loop of its own must not be told of ours.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if (fd := signal.set_wakeup_fd(-1)) >= 0:
        os.close(fd)  # whoever reads there waits for its end, which is not ours
