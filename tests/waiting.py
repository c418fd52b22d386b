"""Waiting for what is sure to come, however busy the machine is."""

import os
import time


def wait_until(condition, what="it", seconds=300):
    """Wait until something is true, and return it; fail long after it should have come."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.005)
    return found


def gone(pid):
    """Say whether there is no such process any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
