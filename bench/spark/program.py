"""A flow by hand as a program of its own: from a file of messages to a folder of files, in a Spark tuned for this machine.

    python program.py FLOW FORM INPUT OUTPUT NOTES BUCKETS

FLOW is etl, stats or pred, FORM one of `FORMS`. A text file, a message to a line behind its number, becomes files of JSON, a
Parquet file a Parquet table, as does kafka:SERVERS/TOPIC, whose messages have their numbers as keys. NOTES is a JSON file of
what is known of sensors, BUCKETS numbers that Spark spreads evenly.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import buckets
import etl
import pred
import stats
from pyspark.sql import DataFrame, SparkSession

FORMS = ("native", "arrow", "transform", "bucket", "job")
_OUT = {
    "etl": ("msg", "senml"),
    "stats": ("msg", "source", "obs", "kind", "result"),
    "pred": ("msg", "source", "kind", "result", "label"),
}
_MESSAGES = "cast(substring_index(value, ',', 1) as long) as msg", "substring(value, instr(value, ',') + 1) as message"


_KEYED = "cast(cast(key as string) as long) as msg", "cast(value as string) as message"


def session(form: str, cores: int, size: int) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        # every core has some parts of the file, and none has a large one when the others are through
        "spark.sql.files.maxPartitionBytes": str(max(2**20, min(2**25, size // (2 * cores)))),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        # a union of two stages with state is safe here: neither follows the other
        "spark.sql.streaming.unsupportedOperationCheck": "false",
    }
    if form == "transform":  # which keeps state nowhere else; for the others, that in memory is faster
        provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        settings["spark.sql.streaming.stateStore.providerClass"] = provider
    if "JARS" in os.environ:
        settings["spark.jars"] = os.environ["JARS"]
    builder = SparkSession.builder.master(f"local[{cores}]").config(map=settings)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def messages(spark: SparkSession, path: str, *, at_once: bool) -> DataFrame:
    if path.startswith("kafka:"):
        servers, topic = path.removeprefix("kafka:").split("/")
        reader = (spark.read if at_once else spark.readStream).format("kafka")
        # one partition of the topic is read by all cores
        options = {"startingOffsets": "earliest", "minPartitions": spark.sparkContext.defaultParallelism}
        return (
            reader.options(subscribe=topic, **{"kafka.bootstrap.servers": servers}, **options)
            .load()
            .selectExpr(*_KEYED)
        )
    reader = spark.read if at_once else spark.readStream.option("maxFilesPerTrigger", 1000)
    where = path if at_once else os.path.join(os.path.dirname(path), f"*{os.path.splitext(path)[1]}")
    if path.endswith(".parquet"):
        return reader.schema("msg long, message string").parquet(where)
    return reader.text(where).selectExpr(*_MESSAGES)


def results(flow: str, form: str, rows: DataFrame, notes: dict[str, tuple[str, str]], numbers: list[int]) -> DataFrame:
    cores = len(numbers) - 1
    if form in ("native", "arrow", "transform"):
        module = {"etl": etl, "stats": stats, "pred": pred}[flow]
        program = getattr(module, form)
        return program(rows, notes) if flow == "etl" else program(rows)
    bucketed = buckets.etl(notes) if flow == "etl" else getattr(buckets, flow)()
    many = {"etl": cores, "stats": cores + 1, "pred": 1}[flow]
    if form == "bucket":
        return buckets.stream(rows, bucketed, numbers[:many])
    return buckets.job(rows, bucketed, many)


def main(flow: str, form: str, path: str, output: str, notes_file: str, numbers_said: str) -> None:
    if form not in FORMS:
        sys.exit(f"there is no form {form!r}; forms are {', '.join(FORMS)}")
    numbers = [int(number) for number in numbers_said.split(",")]
    spark = session(form, len(numbers) - 1, 0 if path.startswith("kafka:") else os.path.getsize(path))
    notes = {}
    if flow == "etl":
        with open(notes_file) as file:
            notes = {name: tuple(words) for name, words in json.load(file).items()}
    at_once = form == "job"
    out = results(flow, form, messages(spark, path, at_once=at_once), notes, numbers).select(*_OUT[flow])
    kind = "json" if path.endswith(".txt") else "parquet"
    if at_once:
        out.write.format(kind).save(output)
    else:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = out.writeStream.format(kind).outputMode("append")
            writer = writer.option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start(output).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
