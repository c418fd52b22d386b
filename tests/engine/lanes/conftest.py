import threading
import time

import pytest

from headwater import engine
from headwater.data.jit import service
from kept_flow import flow, held
from waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def no_threads_before():
    """Let threads end that other tests have left behind: lanes are forked, which is refused beside threads."""
    until = time.monotonic() + PATIENCE_S
    while any(_hinders(thread) for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)


def _hinders(thread):
    return thread is not threading.main_thread() and not service.is_compiling(thread)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Return what the sinks of `kept_flow` hold after a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    engine.run(flow(folder), workers=1)
    found = held(folder)
    assert len(found) == 4
    assert all(found.values())
    return found
