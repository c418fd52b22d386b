import pytest


@pytest.fixture(scope="module")  # beside what drives it no lanes could be forked, so it does not stay
def browser():
    from browsing import chromium

    with chromium() as browser:
        yield browser
