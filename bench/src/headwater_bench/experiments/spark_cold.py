"""ETL, STATS and PRED on Spark as programs, each from its command to its end, beside five programs written by hand.

What a program is given is a text file, of which it makes files of JSON, or a Parquet file or a topic of Kafka, of which it
makes a table. The topic was filled before, and is read to its end; it has one partition, so that all programs find messages
in the order that a flow goes by.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from headwater.cores import whole_cores
from headwater.errors import RunError
from headwater.spark.buckets import Numbers
from headwater_bench.experiments import handwritten
from headwater_bench.experiments.spark_outputs import differences, written
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.generate import messages
from headwater_bench.riot.notes import notes_of
from headwater_bench.servers import kafka

#: with Spark's own functions; Arrow batches and applyInPandasWithState, or transformWithStateInPandas; state by bucket of
#: keys, on whole columns; and the same as a job, not a stream, over what is there
FORMS = ("native", "arrow", "transform", "bucket", "job")
BARE = "bare"  #: the least that a program of PySpark does: it starts Spark, has it count to one, and stops it
_BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(1).count() == 1
spark.stop()
"""
#: from a text file to files of JSON, from a Parquet file to a table, from a topic to a table
WAYS = ("text", "parquet", "kafka")
FILES = WAYS[:2]
#: from a topic, the best that keeps state by key, that keeps it by bucket, and that keeps none: others are behind those
_FORMS_OF = {"kafka": ("arrow", "bucket", "job")}
_TOPIC = "messages"
_FEWER = 2  #: times as few messages are in a topic, whose programs need to run no longer to be told apart
_ENDINGS = {"text": "txt", "parquet": "parquet"}
_PATIENCE_S = 600.0
_ROW_GROUP = 2**15
_PIECE = 2**17  #: messages that are made at once


class Bench:
    """One flow over the same messages as text and as Parquet; each run is a program of its own."""

    def __init__(self, flow: str, folder: Path, count: int, sensors: int) -> None:
        self.flow, self.count, self._folder = flow, count, folder
        self._programs = handwritten.folder()
        city = CityStream(seed=1, sensors=sensors)
        self._notes = folder / "notes.json"
        files = {way: folder / way / f"messages.{ending}" for way, ending in _ENDINGS.items()}
        self._inputs: dict[str, str | Path] = {**files}
        for path in files.values():
            path.parent.mkdir(parents=True)
        self._notes.write_text(json.dumps(notes_of(CITY, city.ids)))
        _write(city, count, files["text"], files["parquet"])
        self._text = files["text"]

    @contextmanager
    def topic(self) -> Iterator[None]:
        """Have a broker and the topic while the context lasts; raises NotHereError where there is none."""
        where = self._folder / "kafka"
        where.mkdir()
        with kafka.broker(where) as servers:
            _fill(servers, self._text, self.count_of("kafka"))
            self._inputs["kafka"] = f"kafka:{servers}/{_TOPIC}"
            yield
            del self._inputs["kafka"]

    def count_of(self, way: str) -> int:
        """Return how many messages a program is given."""
        return self.count // _FEWER if way == "kafka" else self.count

    def seconds(self, way: str, form: str) -> float:
        """Run a program, and return how long that took from its command to its end."""
        output = self.output(way, form)
        rmtree(output, ignore_errors=True)
        cores = whole_cores()
        variables = {"INPUT": self._inputs[way], "OUTPUT": output, "NOTES": self._notes}
        environ = {**os.environ, **{name: str(value) for name, value in variables.items()}, **_java()}
        jars = ",".join(map(str, kafka.connector())) if way == "kafka" else ""
        if form == BARE:
            return _timed([sys.executable, "-c", _BARE], environ)
        if form == "ours":
            environ.pop("PYSPARK_PYTHON")  # which nobody says who runs a flow: the command finds its own
        command = [
            sys.executable,
            "-m",
            "headwater",
            "run",
            f"{self._programs / 'flows.py'}:{self.flow}",
            "--on",
            "spark",
        ]
        if jars:
            command += ["--available-now", "-c", f"spark.jars={jars}"]
            environ["JARS"] = jars
        if form != "ours":
            numbers = Numbers(cores)
            edges = ",".join(str(numbers.of_partition(number)) for number in range(cores + 1))
            command = [sys.executable, str(self._programs / "program.py"), self.flow, form, str(self._inputs[way])]
            command += [str(output), str(self._notes), edges]
            environ["PYTHONPATH"] = str(self._programs)
        return _timed(command, environ)

    def output(self, way: str, form: str) -> Path:
        """Return where a program writes."""
        return self._folder / way / f"out-{form}"

    def differences(self, way: str, forms: Sequence[str]) -> list[str]:
        """Read back what the last runs have written, and say where programs differ from ours."""
        ours = written(self.flow, self.output(way, "ours"))
        by_form = {form: differences(self.flow, ours, written(self.flow, self.output(way, form))) for form in forms}
        return [f"{way}, {form}: {text}" for form, each in by_form.items() for text in each]


def forms_of(way: str) -> tuple[str, ...]:
    """Return the handwritten programs that there are."""
    return _FORMS_OF.get(way, FORMS)


def _timed(command: Sequence[str], environ: dict[str, str]) -> float:
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environ)
        try:
            code = process.wait(_PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        took = time.perf_counter() - began
        if code:
            file.seek(0)
            lines = file.read().decode(errors="replace").strip().splitlines()
            errors = [line for line in lines if "Error" in line or "Exception" in line] or lines[-3:]
            raise RunError(f"{' '.join(command[1:5])} … ended with {code}: {' … '.join(errors[:5])}")
    return took


def _java() -> dict[str, str]:
    from headwater.spark import java

    return {"JAVA_HOME": str(java.find().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def _fill(servers: str, text: Path, count: int) -> None:
    """Fill the topic with the first messages of a text file, each with its number as the key."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for creation in admin.create_topics([NewTopic(_TOPIC, 1, 1)]).values():
        creation.result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2 * _PIECE, "linger.ms": 20})
    with text.open("rb") as lines:
        for at, line in enumerate(islice(lines, count), 1):
            number, _, message = line.rstrip(b"\n").partition(b",")
            producer.produce(_TOPIC, message, number)
            if not at % _PIECE and producer.flush(_PATIENCE_S):
                break
    if producer.flush(_PATIENCE_S):
        raise RunError(f"the broker took no messages for {_PATIENCE_S:.0f} s")


def _write(city: CityStream, count: int, text: Path, table: Path) -> None:
    """Write messages, numbered from 1: to a line each behind their number, and as columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("msg", pa.int64()), ("message", pa.string())])
    with text.open("wb") as lines, pq.ParquetWriter(table, schema) as rows:
        for start in range(0, count, _PIECE):
            many = min(_PIECE, count - start)
            texts_made: list[Any] = messages(city, start, many).bytes_list()
            lines.writelines(b"%d,%b\n" % (start + 1 + at, each) for at, each in enumerate(texts_made))
            numbers = np.arange(start + 1, start + many + 1)
            texts = pa.array([each.decode() for each in texts_made], pa.string())
            rows.write_table(pa.table([numbers, texts], schema=schema), row_group_size=_ROW_GROUP)
