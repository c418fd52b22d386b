"""What test_kafka.py runs in a process of its own, whose Spark has the connector: reads a topic by micro-batches of a time.

Prints how many records each micro-batch had, first where it may take long, then where none can be short enough.
"""

import json
import sys
from pathlib import Path

from headwater import Flow, io, spark
from headwater.flow.ranges import Sizes
from headwater.spark.session import session

TOPIC, MOST = "backlog", 1600


def batches(servers, out, source, target, most):
    """Read all that a topic holds; return how many records each micro-batch had."""
    flow = Flow("paced")
    flow.read("topic", source).write("out", io.JsonLines(out))
    running = spark.start(flow, available_now=True, sizes=Sizes(2, batch_records=most), target=target)
    running.wait(120)
    read = [each for told in running._query.recentProgress for each in told.sources]
    return [each.numInputRows for each in read if each.numInputRows and each.description.startswith("Kafka")]


def main(servers, jars, folder):
    running = session("local[2]", {"spark.jars": jars})
    source = io.Kafka(servers, TOPIC, {"n": int})
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    rows = running.readStream.format("kafka").options(maxOffsetsPerTrigger=MOST, **options).load()
    frame = spark.Frame(rows.selectExpr("cast(get_json_object(cast(value AS string), '$.n') AS bigint) AS n"))
    told = {
        "long": batches(servers, folder / "long.jsonl", source, "10 min", MOST),
        "short": batches(servers, folder / "short.jsonl", source, "1 ms", 10 * MOST),
        "frame": batches(servers, folder / "frame.jsonl", frame, "1 ms", MOST),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
