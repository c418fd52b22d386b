import threading
import time

import pytest

from headwater.data.jit import service


@pytest.fixture(autouse=True)
def no_threads_before():
    """Let threads end that other tests have left behind: lanes are forked, which is refused beside threads."""
    until = time.monotonic() + 30
    while any(_hinders(thread) for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)


def _hinders(thread):
    return thread is not threading.main_thread() and not service.is_compiling(thread)
