"""What pytest need not look into: finding tests is done once by every process that runs some."""

import gc
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SOURCES = (ROOT / "src", ROOT / "bench" / "src")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage neither while tests are found nor, at each later look and fork, among all that stays of that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_ignore_collect(collection_path, config):
    """Pass over files without an example and, where only tests of Spark are wanted, over tests that do not speak of it."""
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    if any(collection_path.is_relative_to(folder) for folder in SOURCES):
        wanted = ">>>"
    elif config.option.markexpr.startswith("spark"):
        wanted = "spark"
    else:
        return None
    return None if wanted in collection_path.read_text() else True
