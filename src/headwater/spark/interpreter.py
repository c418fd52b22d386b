"""How Spark starts Python: with the installed pyspark before the copy that Spark brings.

Spark puts an archive of pyspark's sources first on the path of each Python process. Modules of an archive are compiled
anew in each process, which takes 0.6 s; those that are installed were compiled once. A query starts two such processes.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from hashlib import sha256
from pathlib import Path

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
exec {python} "$@"
"""


def launcher() -> str:
    """Return the program that Spark should start where it wants Python."""
    import pyspark
    from pyspark.find_spark_home import _find_spark_home

    home = Path(pyspark.__file__).parent
    if os.name != "posix" or Path(_find_spark_home()).resolve() != home.resolve():  # another Spark has its own pyspark
        return sys.executable
    archives = Path(_find_spark_home()) / "python" / "lib"
    text = _LAUNCHER.format(archives=shlex.quote(str(archives)), python=shlex.quote(sys.executable))
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
