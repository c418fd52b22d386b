from __future__ import annotations

import csv
import json
import zipfile

import numpy as np
import pytest

from headwater import Flow, engine, io
from headwater.cli.rewire import rewire
from headwater.errors import FlowError
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.generate import messages


def a_flow(schema):
    flow = Flow("f")
    records = flow.read("records", io.Generate(lambda n: {"n": n}, {"n": int}, 1e6, count=5000))
    made = records.map_batches("half", lambda batch: {"x": (batch["n"] / 10).astype(np.float32)}, out=schema)
    made.write("out", io.Discard(), parallel=4)
    return flow


def test_four_instances_of_a_sink_do_not_overwrite_each_other_in_a_file(tmp_path):
    report = engine.run(rewire(a_flow({"n": int, "x": "float32"}), output=tmp_path), take=10)
    with (tmp_path / "out.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert sorted(int(row["n"]) for row in rows) == list(range(5000))
    assert report.last.records_out == {"out": 5000}


def test_a_32_bit_float_is_written_with_no_more_digits_than_it_has(tmp_path):
    engine.run(rewire(a_flow({"n": int, "x": "float32"}), output=tmp_path))
    assert "1,0.1\n" in (tmp_path / "out.csv").read_text()
    schema = {"n": int, "x": "float32", "more": object}
    flow = Flow("g")
    made = flow.read("records", io.Items([{"n": 1, "x": 0.1, "more": [1]}, {"n": 2, "x": None, "more": 2}], schema))
    made.write("out", io.Discard())
    engine.run(rewire(flow, output=tmp_path / "json"))
    found = [json.loads(line) for line in (tmp_path / "json" / "out.jsonl").read_text().splitlines()]
    assert [record["x"] for record in found] == [0.1, None]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_stats_viz_runs_from_the_command_line_on_a_file(typed, tmp_path, workers):
    lines = messages(CityStream(sensors=5), 0, 200).tolist()
    (tmp_path / "messages.txt").write_text("\n".join(lines))
    options = ("--input", "messages.txt", "--output", "out", "--workers", workers, "--json")
    code, out, _ = typed("run", "riot:stats-viz", *options)
    report = json.loads(out)
    assert (code, report["records_in"], report["dead_letters"], report["left"]) == (0, 200, 0, 0)
    archives = sorted((tmp_path / "out").glob("charts-*.zip"))
    assert len(archives) == report["records_out"]["upload"] > 1
    names = [name for path in archives for name in zipfile.ZipFile(path).namelist()]
    assert len(set(names)) == len(names) > 100
    assert {name.rsplit("-", 1)[1] for name in names} == {f"{name}.svg" for name in (*CITY.numbers, CITY.id)}


@pytest.mark.parametrize("name", ["etl", "stats", "pred"])
def test_every_sink_of_a_bundled_flow_is_written_in_the_order_of_the_input(typed, tmp_path, name):
    lines = messages(CityStream(sensors=9), 0, 400).tolist()
    (tmp_path / "messages.txt").write_text("\n".join(lines))
    code, _, _ = typed("run", f"riot:{name}", "--input", "messages.txt", "--output", "out", "--take", "7")
    assert code == 0
    files = sorted((tmp_path / "out").glob("*.csv"))
    assert files
    for path in files:
        with path.open() as rows:
            numbers = [int(row["msg"]) for row in csv.DictReader(rows)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(1, 401))


def test_an_endless_generator_is_run_at_another_rate_and_a_broker_cannot_be_replayed():
    def endless(source):
        flow = Flow("endless")
        flow.read("ticks", source).write("out", io.Discard())
        return flow

    ticks = io.Generate(lambda n: {"n": n}, {"n": int, "at": "time"}, 1.0, time="at")
    report = engine.run(rewire(endless(ticks), rate=2000), seconds=0.2)
    assert report.last.records_in > 1
    with pytest.raises(FlowError, match=r"--rate replays what a source holds, and .* has no end"):
        rewire(endless(io.Mqtt("mqtt://broker", "a", {"n": int})), rate=2000)


def test_a_second_file_for_a_source_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    with pytest.raises(FlowError, match="--input gives source 'records' twice"):
        rewire(a_flow({"n": int, "x": "float32"}), inputs=[f"records={tmp_path}/a.csv", f"{tmp_path}/a.csv"])
