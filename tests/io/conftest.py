"""What the tests of sources and sinks share: a clock moved by hand and a list of rejected records."""

import resource
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headwater.errors import InputError

sys.path.append(str(Path(__file__).parent))  # for io_strategies and broker


class HandClock:
    """A clock that only `sleep` and the test move."""

    def __init__(self, now_ns=1_700_000_000_000_000_000):
        self.ns = now_ns
        self.slept = []

    def now_ns(self):
        return self.ns

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.ns += round(seconds * 1e9)


class Rejected(list):
    """Collects (text, reason) pairs; passes for the `reject` that a runner hands to a source."""

    def __call__(self, text, reason):
        self.append((text, reason))


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture(scope="session")
def make_clock():
    return HandClock


@pytest.fixture
def rejected():
    return Rejected()


@pytest.fixture
def opened():
    """Open readers and writers that are closed after the test, whatever came of it."""
    everything = []

    def open_one(endpoint, given):
        everything.append(endpoint.open(given))
        return everything[-1]

    yield open_one
    for endpoint in everything:
        with suppress(InputError):  # undelivered records are some tests' very point
            endpoint.close()


@contextmanager
def limited(nbytes):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def file_limit():
    """Let no file of this process grow beyond a size: the kernel writes up to there and then fails."""
    return limited


@pytest.fixture
def broker(tmp_path):
    """A mosquitto that keeps all that a client has not heard yet."""
    from mosquitto import Mosquitto

    folder = tmp_path / "broker"
    folder.mkdir()
    broker = Mosquitto(folder, "max_queued_messages 0").start()
    yield broker
    broker.stop()
