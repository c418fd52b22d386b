"""The site under docs/ builds without a warning, has every public name, and loads nothing from elsewhere."""

import importlib
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("sphinx", reason="the site is built with the extra `docs`")
pytest.importorskip("furo", reason="the site is built with the extra `docs`")

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
MODULES = re.findall(r"^\.\. automodule:: (\S+)$", "".join(page.read_text() for page in PAGES), re.MULTILINE)
ELSEWHERE = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site():
    """The site as it is; of what was built before only pages are built anew whose text or code has changed since."""
    folder = ROOT / "out" / "tested-site"
    done = build(folder)
    if (
        done.returncode
    ):  # it may be what a build that was cut off has left; and of pages as before nothing is said again
        shutil.rmtree(folder, ignore_errors=True)
        done = build(folder)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    return folder


def build(folder):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_nothing_on_a_page_is_loaded_from_elsewhere(site):
    for page in (*site.rglob("*.html"), *site.rglob("*.css")):
        assert not ELSEWHERE.findall(page.read_text()), page.name


def test_every_exported_name_is_in_the_reference(site):
    entries = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    described = {line.split()[0] for line in entries.splitlines() if " py:" in line}
    for name in (each for each in MODULES if each.count(".") < 2):  # of other modules, whatever they define is shown
        module = importlib.import_module(name)
        exported = [
            each for each in getattr(module, "__all__", ()) if not isinstance(getattr(module, each), ModuleType)
        ]
        assert {f"{name}.{each}" for each in exported} <= described


def test_every_package_that_headwater_hands_out_has_a_page():
    import headwater

    packages = [f"headwater.{name}" for name in headwater._PACKAGES]
    assert set(packages) <= set(MODULES)
