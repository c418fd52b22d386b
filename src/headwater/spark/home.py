"""Where Spark is installed; asked without loading pyspark, which takes longer than all else that is asked at the start."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import RunError

MISSING = "Spark is not installed: pip install 'headwater[spark]'"


def spark_home() -> Path:
    """Return the folder of Spark: the one that SPARK_HOME names, else pyspark's own."""
    home = os.environ.get("SPARK_HOME")
    return Path(home) if home else pyspark_folder()


def pyspark_folder() -> Path:
    """Return the folder of pyspark, which has a Spark in it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise RunError(MISSING)
    return Path(spec.submodule_search_locations[0])


def spark_version() -> str:
    """Return the version of pyspark."""
    return version("pyspark")


def conf_folder() -> Path:
    """Return the folder in which Spark looks for what the user has configured; mostly there is none."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def written_defaults() -> set[str]:
    """Return the names that the user's spark-defaults.conf sets."""
    try:
        lines = (conf_folder() / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return set()
    return {re.split(r"[\s=]", line.strip(), maxsplit=1)[0] for line in lines if line.strip().startswith("spark.")}
