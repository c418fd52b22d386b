import pytest

from headwater_bench.servers import free_port
from headwater_bench.servers import taking as server


class Taking(server.Taking):
    def taken(self):
        """Return the values of `n` that it has, in the order they came."""
        return [record["n"] for record in self.records()]


@pytest.fixture
def taking(tmp_path):
    started = []

    def start(*options):
        started.append(Taking(tmp_path, *options).start())
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def port():
    return free_port()
