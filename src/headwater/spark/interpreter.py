"""How Spark starts Python: by the fork server, if there is one, and with the installed pyspark before Spark's copy.

Spark puts an archive of pyspark's sources first on the path of each Python process. Modules of an archive are compiled
anew in each process, which takes 0.6 s; those that are installed were compiled once. What Java starts by the name of a
module, the fork server forks from a process that has loaded them.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from hashlib import sha256
from pathlib import Path

from headwater.spark import forkclient
from headwater.spark.home import pyspark_folder, spark_home
from headwater.spark.java import cache_folder

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
    made = cache_folder() / f"python-{sha256(text.encode()).hexdigest()[:12]}"
    if not made.exists():
        try:
            _write(made, text)
        except OSError:
            return sys.executable
    return str(made) if os.access(made, os.X_OK) else sys.executable  # a folder may allow no programs


def _write(made: Path, text: str) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    fresh = made.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
    fresh.replace(made)  # another process may want it at the same time
