from __future__ import annotations

import csv
import json

import numpy as np

from headwater import Flow, engine, io
from headwater.cli.rewire import rewired


def a_flow(schema):
    flow = Flow("f")
    records = flow.read("records", io.Generate(lambda n: {"n": n}, {"n": int}, 1e6, count=5000))
    made = records.map_batches("half", lambda batch: {"x": (batch["n"] / 10).astype(np.float32)}, out=schema)
    made.write("out", io.Discard(), parallel=4)
    return flow


def test_four_instances_of_a_sink_do_not_overwrite_each_other_in_a_file(tmp_path):
    report = engine.run(rewired(a_flow({"n": int, "x": "float32"}), output=tmp_path), take=10)
    with (tmp_path / "out.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert sorted(int(row["n"]) for row in rows) == list(range(5000))
    assert report.last.records_out == {"out": 5000}


def test_a_32_bit_float_is_written_with_no_more_digits_than_it_has(tmp_path):
    engine.run(rewired(a_flow({"n": int, "x": "float32"}), output=tmp_path))
    assert "1,0.1\n" in (tmp_path / "out.csv").read_text()
    schema = {"n": int, "x": "float32", "more": object}
    flow = Flow("g")
    made = flow.read("records", io.Items([{"n": 1, "x": 0.1, "more": [1]}, {"n": 2, "x": None, "more": 2}], schema))
    made.write("out", io.Discard())
    engine.run(rewired(flow, output=tmp_path / "json"))
    found = [json.loads(line) for line in (tmp_path / "json" / "out.jsonl").read_text().splitlines()]
    assert [record["x"] for record in found] == [0.1, None]
