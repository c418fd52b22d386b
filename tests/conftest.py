import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can share `strategies`

settings.register_profile(
    "tests", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests: starting one takes longer than most tests."""
    from headwater.spark.session import session

    running = session("local[2]")
    yield running
    running.stop()
