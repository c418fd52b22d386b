"""What test_kafka.py runs in a process of its own, whose Spark has the connector: writes a topic, reads it, prints JSON."""

import json
import sys
from pathlib import Path

from headwater import Flow, io, spark
from headwater.flow.ranges import Sizes
from headwater.spark.session import session

RECORDS, KEYS, MOST = 1500, 5, 500
JAVA_ONLY = {"kafka.max.request.size": "1048576"}  # with which Spark's own connector writes


def numbered(state, record):
    state = (state or 0) + 1
    return state, {"n": record["n"], "tank": record["tank"], "place": state, "about": {"unit": f"u{record['n'] % 2}"}}


def written(servers, source, topic, sizes=None, **options):
    """Write a topic from a file, by a flow that is keyed by tank."""
    flow = Flow("writing")
    made = flow.read("lines", source).key_by("tank")
    counted = made.process("count", numbered, out={"n": int, "tank": str, "place": int, "about": "any"})
    counted.write("out", io.Kafka(servers, topic, headers="about", **options))
    spark.run(flow, sizes=sizes)


def held(running, servers, topic):
    """Return what a topic holds, as any other reader finds it: by partition and offset."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    rows = running.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()
    return [
        (row.partition, None if row.key is None else bytes(row.key).decode(), json.loads(row.value)) for row in rows
    ]


def read(servers, topic, out, **options):
    """Read what topics hold now, in micro-batches of a few hundred records."""
    flow = Flow("reading")
    fields = {"n": int, "tank": str, "place": int}
    source = io.Kafka(servers, topic, fields, key_column="key", headers="about", **options)
    flow.read("topic", source).write("out", io.JsonLines(out))
    return spark.run(flow, available_now=True, sizes=Sizes(parallel=2, batch_records=MOST)).to_json()


def main(servers, jars, folder):
    running = session("local[2]", {"spark.jars": jars})
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps({"n": n, "tank": f"t{n % KEYS}"}) + "\n" for n in range(RECORDS)))
    source = io.JsonLines(path, {"n": int, "tank": str})
    written(servers, source, "keyed", Sizes(parallel=2, batch_bytes=12_000, piece_bytes=3_000))  # several micro-batches
    written(servers, source, "by-number", key=["n"], options=JAVA_ONLY)
    report = read(servers, "keyed", folder / "out.jsonl")
    read(servers, "(keyed|by-.*)", folder / "all.jsonl", pattern=True, topic_column="topic")
    told = {
        "keyed": held(running, servers, "keyed"),
        "by number": held(running, servers, "by-number"),
        "report": report,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
