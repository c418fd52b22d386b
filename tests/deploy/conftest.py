"""What the tests of sites share: certificates, which take a while to make."""

import shutil

import pytest

from headwater.deploy.certificates import issue


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Return a folder with those of a coordinator and two sites, and of who issued them."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("coordinator", "cloud", "barn"):
        issue(folder, name)
    return folder
