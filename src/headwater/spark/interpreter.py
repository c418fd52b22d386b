"""How Spark starts Python: by the fork server, if there is one, and with the installed pyspark before Spark's copy.

Spark puts an archive of pyspark's sources first on the path of each Python process. Modules of an archive are compiled
anew in each process, which takes 0.6 s; those that are installed were compiled once. What Java starts by the name of a
module, the fork server forks from a process that has loaded them.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import RunError
from headwater.spark import forkclient
from headwater.spark.home import pyspark_folder, spark_home
from headwater.spark.java import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED = """\
import sys
from importlib.util import find_spec
print("{}.{}".format(*sys.version_info), find_spec("headwater") is not None)
"""
_LAUNCHER = """\
#!/bin/sh
path=
IFS=:
for place in $PYTHONPATH; do
  case $place in
    {archives}/*.zip) ;;
    *) path="$path${{path:+:}}$place" ;;
  esac
done
PYTHONPATH=$path
[ -n "${server}" ] && [ "$1" = -m ] && exec {python} -I -S {client} "$@"
exec {python} "$@"
"""


def launcher() -> str:
    """Return the program that Spark should start where it wants Python."""
    home = spark_home()
    if os.name != "posix" or home.resolve() != pyspark_folder().resolve():  # another Spark has its own pyspark
        return sys.executable
    archives = home / "python" / "lib"
    text = _LAUNCHER.format(
        archives=shlex.quote(str(archives)),
        python=shlex.quote(sys.executable),
        server=forkclient.SERVER,
        client=shlex.quote(forkclient.__file__),
    )
    path = cache_folder() / f"python-{sha256(text.encode()).hexdigest()[:12]}"
    if not path.exists():
        try:
            _write(path, text)
        except OSError:
            return sys.executable
    return str(path) if os.access(path, os.X_OK) else sys.executable  # a folder may allow no programs


def check_workers(spark: SparkSession) -> None:
    """Raise if the workers of a session on this machine run a Python in which there is no headwater.

    That of a session which others have started is `python3` unless told, whatever Python this is: usual in a notebook whose
    environment is not activated.
    """
    context = getattr(spark, "_sc", None)  # which a session of Spark Connect has not
    python = None if context is None or not context.master.startswith("local") else context.pythonExec
    if python in (None, sys.executable, launcher()):
        return
    trouble = _trouble(python)
    if trouble:
        raise RunError(
            f"Spark's workers run {python!r}, {trouble}: before the session is started, set "
            f'os.environ["PYSPARK_PYTHON"] = sys.executable ({sys.executable})'
        )


@cache
def _trouble(python: str) -> str:
    """Say why a program does as no worker of ours; nothing if it does."""
    try:
        answer = subprocess.run([python, "-c", _ASKED], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "which cannot be started"
    if answer.returncode:
        return "which is no Python that works"
    version, has_headwater = answer.stdout.split()
    mine = "{}.{}".format(*sys.version_info)
    if version != mine:
        return f"which is Python {version}, and this is {mine}"
    return "" if has_headwater == "True" else "in which there is no headwater"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
    fresh.replace(path)  # another process may want it at the same time
