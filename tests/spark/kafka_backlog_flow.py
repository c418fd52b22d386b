"""What test_kafka.py runs in a process of its own, whose Spark has the connector: counts what a backlog holds by minute."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from headwater import io, spark
from headwater.flow.ranges import Sizes
from headwater.spark.session import session
from split_source import SCHEMA, counted


def main(servers, jars, folder):
    session("local[2]", {"spark.jars": jars})
    flow = counted(io.Kafka(servers, "backlog", SCHEMA), folder / "out.jsonl")
    sizes = Sizes(parallel=2, batch_records=2_000)
    report = spark.run(flow, available_now=True, sizes=sizes, checkpoint=folder / "checkpoint")
    print(json.dumps(report.to_json()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
