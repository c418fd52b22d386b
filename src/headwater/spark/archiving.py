"""Makes the archive of classes from which Java starts: `python -m headwater.spark.archiving`, mostly without being asked.

A session that has found none has it made after its end, by a process that nobody waits for: a small job on Spark, at a
low priority, that has Java load what flows load.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.processes import family, kill
from headwater.spark.archive import SETTING, Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = "spark.driver.defaultJavaOptions"  #: Java's, that go before those which are the user's own
_NICE = 19
_PATIENCE_S = 300.0  #: for Java to write the archive


@cache
def make_at_exit(archive: Archive) -> None:
    """Have an archive made when this process has ended, if it is due."""
    if archive.is_due():
        atexit.register(_start_making, archive)


def leave_unmade() -> None:
    """Have nothing made after this process, which only looks: whoever started it may not know what is at work then."""
    atexit.unregister(_start_making)


def _start_making(archive: Archive) -> None:
    """Start the process that makes an archive: it has nothing of ours open, and no terminal."""
    if not archive.is_due():
        return  # another process was faster
    none = subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", __name__]
    with suppress(OSError):
        subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)


def main() -> None:
    """Make the archive for the Java and the Spark that a session of this machine has."""
    from headwater.spark.session import own_archive

    archive = own_archive()
    os.environ[SETTING] = "off"  # in the job that makes it
    give_way()
    signal.signal(signal.SIGTERM, _end_with_all)
    if not archive.make(_train):
        raise SystemExit(f"there is no {archive.path}: another process is making it")


def give_way() -> None:
    """Let whoever is at work go before this process."""
    os.nice(_NICE)
    with suppress(OSError):  # a session of its own has, on Linux, a share of its own, whatever the priorities in it
        Path("/proc/self/autogroup").write_text(str(_NICE))


def _end_with_all(number: int, _: object) -> None:
    """End at a signal with all processes that were started here: a Java that is only left alone would write its archive."""
    kill(family(os.getpid())[1:])
    raise SystemExit(128 + number)


def _train(options: list[str]) -> None:
    from headwater.spark.gateway import java_side
    from headwater.spark.session import session

    spark = session(settings={OPTIONS: shlex.join(options)})
    _work(spark)
    spark.stop()
    side = java_side()
    assert side is not None
    side.end(_PATIENCE_S)


def _work(spark: SparkSession) -> None:
    """Have Java load what it needs for flows with and without state, for tables, and for text."""
    from headwater import Flow, Tumbling, agg, io
    from headwater.spark import run

    rows = [{"key": "ab"[n % 2], "n": n, "at": datetime.fromtimestamp(n, UTC)} for n in range(1000)]
    flow = Flow("classes")
    timed = flow.read("rows", io.Items(rows, {"key": str, "n": int, "at": "time"})).event_time(
        "time", "at", lateness="1 s"
    )
    timed.key_by("key").window("windows", Tumbling("10 s"), mean=agg.mean("n")).write("out", io.Discard())
    run(flow)
    with tempfile.TemporaryDirectory() as folder:
        table, text = f"{folder}/table", f"{folder}/text"
        spark.range(1000).selectExpr("id", "id % 7 AS key", "cast(id AS string) AS text").write.parquet(table)
        spark.read.parquet(table).where("id > 3").groupBy("key").count().toArrow()
        spark.read.parquet(table).select("text").write.text(text)
        spark.read.text(text).selectExpr("upper(value)").toArrow()


if __name__ == "__main__":
    main()
