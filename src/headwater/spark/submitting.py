"""Packs a flow for `spark-submit`: a program for the driver, the flow's own modules, and the command that starts it all.

Nothing here starts Spark, or needs it to be installed where the command is only looked at.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from headwater.errors import RunError
from headwater.spark.home import written_defaults

_ENVIRONMENT = "environment"  #: the folder as which executors find what was packed
_MAIN = '''\
"""Made by `headwater spark submit`: runs flow {name} where spark-submit starts it."""

import json
import sys

from headwater.cli import main

sys.argv = ["headwater", *json.loads({words!r})]
main()
'''
_PROGRAM = (
    "submit-flow.py"  #: what no module can be called: its folder is where Python looks for those of the flow first
)
_UPLOADS = "spark.kubernetes.file.upload.path"


@dataclass(frozen=True, slots=True)
class Submission:
    """What `spark-submit` is given."""

    command: list[str]
    main: Path  #: the program for the driver
    modules: Path | None  #: the flow's own, packed; None where they are installed


def packed(
    words: Sequence[str],
    name: str,
    folder: Path,
    *,
    files: Mapping[str, bytes],
    master: str,
    deploy_mode: str = "client",
    environment: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Submission:
    """Write what is needed into a folder.

    `words` are what the driver's program says to `headwater`, `name` is what the flow calls itself, and `files` are its
    modules that are not installed.
    """
    check_driver(master, deploy_mode, settings or {})
    if environment is not None and not environment.is_file():
        raise RunError(f"there is no file {str(environment)!r}; make it with venv-pack -o {environment}")
    folder = folder.absolute()  # the command may be kept, and run from elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    modules = _zipped(files, folder)
    main = folder / _PROGRAM
    main.write_text(_MAIN.format(name=name, words=json.dumps(list(words))))
    command = [_spark_submit(), "--master", master, "--deploy-mode", deploy_mode, "--name", name]
    if modules is not None:
        command += ["--py-files", str(modules)]
    here = _of_driver_here(master) if deploy_mode == "client" else {}
    options = {**here, **_of_environment(environment, master, deploy_mode), **(settings or {})}
    if environment is not None:
        command += ["--archives", f"{environment}#{_ENVIRONMENT}"]
    for key, value in options.items():
        command += ["--conf", f"{key}={value}"]
    return Submission([*command, str(main)], main, modules)


def check_driver(master: str, deploy_mode: str, settings: Mapping[str, str]) -> None:
    """Raise if the driver cannot be where it is to be, or nothing could bring it what it needs."""
    if deploy_mode not in ("client", "cluster"):
        raise RunError(f"--deploy-mode is client or cluster, where the driver runs; got {deploy_mode!r}")
    if deploy_mode == "client":
        return
    if master.startswith(("spark://", "local")):
        kind = "a standalone cluster" if master.startswith("spark://") else "a local master"
        raise RunError(
            f"Spark runs no driver in Python on {kind}: leave --deploy-mode cluster out, and the driver runs here"
        )
    if master.startswith("k8s://") and _UPLOADS not in settings and _UPLOADS not in _defaults():
        raise RunError(
            "the program and the modules are files of this machine, and pods fetch them from where a setting says: "
            f"-c {_UPLOADS}=s3a://…, a URL that this machine and the pods see"
        )


def _defaults() -> set[str]:
    try:
        return written_defaults()
    except RunError:  # no Spark is installed here
        return set()


def _zipped(files: Mapping[str, bytes], folder: Path) -> Path | None:
    """Write modules into one file, as executors import them."""
    if not files:
        return None
    modules = folder / "modules.zip"
    with ZipFile(modules, "w") as archive:
        for inner in sorted({parent.as_posix() for file in files for parent in PurePosixPath(file).parents} - {"."}):
            archive.writestr(f"{inner}/", b"")  # without which a folder without __init__.py is no package there
        for file, text in files.items():
            archive.writestr(file, text)
    return modules


def _of_driver_here(master: str) -> dict[str, str]:
    """Return the settings of a driver that runs here: this Python, whatever a shell finds, and Spark's errors alone."""
    words = Path(__file__).with_name("log4j2.properties").as_uri()
    own = {
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={words}",
    }
    return own | ({"spark.pyspark.python": sys.executable} if master.startswith("local") else {})


def _of_environment(environment: Path | None, master: str, deploy_mode: str) -> dict[str, str]:
    """Return the settings by which driver and executors use the Python that was packed."""
    if environment is None:
        return {}
    python = f"./{_ENVIRONMENT}/bin/python"
    own = {"spark.pyspark.python": python}
    if deploy_mode == "cluster" and master.startswith("yarn"):
        own["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = python
    return own


def _spark_submit() -> str:
    home = os.environ.get("SPARK_HOME")
    if home:
        return str(Path(home) / "bin" / "spark-submit")
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        return "spark-submit"
    return str(Path(_find_spark_home()) / "bin" / "spark-submit")
