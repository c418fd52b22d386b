"""What the tests of sites share: certificates, which take a while to make, and commands that are ended."""

import shutil

import pytest

from headwater.deploy.certificates import issue
from sites_of import Commands


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Return a folder with those of a coordinator and two sites, and of who issued them."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("coordinator", "cloud", "barn"):
        issue(folder, name)
    return folder


@pytest.fixture
def commands(tmp_path):
    """Return what starts commands in a folder of the test, and ends them."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    made = Commands(tmp_path)
    yield made
    made.close()
