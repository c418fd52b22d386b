"""Waiting for what is sure to come, however busy the machine is."""

import os
import socket
import time

#: for what comes in a moment on a quiet machine: nobody waits so long but where it does not come at all
PATIENCE_S = 300


def wait_until(condition, what="it", seconds=PATIENCE_S, pause_s=0.005, said=lambda: ""):
    """Wait until something is true, and return it; fail long after it should have come, with what is said meanwhile."""
    end = time.monotonic() + seconds
    while True:
        looked = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < end, f"{what} did not come within {seconds} s{said()}"
        time.sleep(max(pause_s, 4 * (now - looked)))  # looks take processor time from what is waited for


def gone(pid):
    """Say whether there is no such process any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def hangs_up_on_who_drips(address, said):
    """Say whether a server does, that is told a little more all the time and never all of it."""
    with socket.create_connection(address, PATIENCE_S) as line:
        line.sendall(said)
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            try:
                line.sendall(b" ")
            except (BrokenPipeError, ConnectionResetError):
                return True
            time.sleep(0.02)
    return False
