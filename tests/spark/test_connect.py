"""Through Spark Connect: a client without Java of its own, and a server from the same distribution."""

import os
import subprocess
import sys

import pytest

from headwater.spark import java

pytest.importorskip("grpc", reason="Spark Connect needs the packages grpcio and grpcio-status")

CLIENT = """
from datetime import UTC, datetime, timedelta
from pyspark.sql import SparkSession
from headwater import Flow, Tumbling, agg, io, spark
from headwater.errors import HeadwaterError

connect = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
eight = datetime(2026, 11, 15, 8, tzinfo=UTC)
rows = [("ab"[n % 2], float(n), eight + timedelta(seconds=n)) for n in range(60)]
table = connect.createDataFrame(rows, "tank string, level double, at timestamp")

def means(levels):
    return levels.event_time("t", "at").key_by("tank").window("means", Tumbling("30 s"), mean=agg.mean("level"))

print(sorted((row.tank, row["mean"]) for row in spark.apply(means, table).collect()))
table.write.parquet("in")
stream = connect.readStream.schema(table.schema).parquet("in")
query = spark.query(stream, "from every e1=stream[level < 1] -> e2=stream[level > 57] select e2.level as high")
found = query.writeStream.option("checkpointLocation", "kept").trigger(availableNow=True).start("out", format="parquet")
found.awaitTermination()
print([row.high for row in connect.read.parquet("out").collect()])
try:
    flow = Flow("run")
    flow.read("levels", spark.Frame(stream)).write("out", io.Discard())
    spark.run(flow)
except HeadwaterError as error:
    print(error)
connect.stop()
"""


def test_flows_and_patterns_run_through_connect_and_what_cannot_says_why(tmp_path):
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java.find().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    client = [sys.executable, "-c", CLIENT]
    done = subprocess.run(
        client, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert "[('a', 14.0), ('a', 44.0), ('b', 15.0), ('b', 45.0)]" in told
    assert "[58.0]" in told
    assert any("needs Java in its own process; use spark.apply" in line for line in told)
