"""How long a small job takes from the command to its first output, beside the least that PySpark itself can do."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headwater.errors import RunError
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.generate import messages

MESSAGES = 1_000
_PATIENCE_S = 300.0
#: what somebody would write who wants to see a file go through Spark, and no more
_BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.read.text(sys.argv[1]).selectExpr("upper(value)").write.text(sys.argv[2])
"""


def first_output(repeats: int) -> dict[str, float]:
    """Return the median seconds of ETL and of a bare program, in turns, each in processes of its own."""
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        path = folder / "messages.txt"
        texts = messages(CityStream(seed=1), 0, MESSAGES).bytes_list()
        path.write_bytes(b"".join(text + b"\n" for text in texts))
        headwater = [sys.executable, "-m", "headwater", "run", "riot:etl", "--on", "spark", "--input", str(path)]
        for turn in range(repeats):
            there = [folder / f"{form}-{turn}" for form in ("ours", "bare")]
            ours.append(_seconds([*headwater, "--output", str(there[0])], there[0]))
            bare.append(_seconds([sys.executable, "-c", _BARE, str(path), str(there[1])], there[1]))
    return {
        "first_output_s": round(statistics.median(ours), 1),
        "bare_spark_s": round(statistics.median(bare), 1),
        "over_bare_spark": round(statistics.median(a / b for a, b in zip(ours, bare, strict=True)), 2),
    }


def _seconds(command: Sequence[str], folder: Path) -> float:
    """Start a program, and wait until a file of its output has something in it, and then for its end."""
    from headwater.spark import java

    environ = {**os.environ, "JAVA_HOME": str(java.find().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environ)
        try:
            while True:
                ended = process.poll() is not None  # asked first: all that it has written is there then
                if _has_output(folder):
                    took = time.perf_counter() - began
                    break
                if ended or time.perf_counter() - began > _PATIENCE_S:
                    file.seek(0)
                    text = file.read().decode(errors="replace").strip()[-500:]
                    raise RunError(f"{' '.join(command[:6])} … had no output: {text}")
                time.sleep(0.02)
            process.wait(_PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return took


def _has_output(folder: Path) -> bool:
    """Say whether there is a line of records: what Spark writes to the side first, in names with a _, is not there yet."""
    for path in folder.glob("*") if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # renamed just now
            if path.is_file() and path.name[0] not in "._" and path.read_bytes().count(b"\n") > 1:
                return True
    return False
