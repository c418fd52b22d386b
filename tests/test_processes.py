"""Processes that are killed, whether they are still there or not."""

import signal
import subprocess
import sys

from headwater.processes import kill

_NOBODY = 2**30  #: above what Linux numbers processes with


def test_one_that_is_gone_does_not_keep_the_others_from_being_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        kill([_NOBODY, child.pid])
        assert child.wait() == -signal.SIGKILL
