"""`headwater run riot:NAME`, as the command line does it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headwater import engine
from headwater.cli.rewire import rewire
from headwater.data.batch import Batch, stamped
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow import draw
from headwater.io import Collect
from headwater.models.model import LinearModel, TreeModel, load
from headwater_bench.riot import flow_named
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.in_order import InOrder
from headwater_bench.riot.train import generated_table
from waiting import wait_until


@pytest.fixture
def message_file(tmp_path) -> Path:
    path = tmp_path / "messages.csv"
    lines = messages(stream("CITY"), 0, 120).tolist()
    path.write_text("".join(f"{1422748800000 + i},{line}\n" for i, line in enumerate(lines)))
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def test_etl_writes_rows_and_messages_in_the_order_of_its_input(message_file, tmp_path):
    report = engine.run(rewire(flow_named("etl"), inputs=[str(message_file)], output=tmp_path / "out"), take=3)
    rows = table(tmp_path / "out" / "insert.csv")
    assert [int(row["msg"]) for row in rows] == list(range(1, 121))
    written = (tmp_path / "out" / "publish.jsonl").read_text().splitlines()
    assert [json.loads(line)["e"][0]["sv"] for line in written] == [row["source"] for row in rows]
    assert report.dead_letters == 0


def test_stats_writes_results_by_message_and_what_the_filter_says(message_file, tmp_path):
    engine.run(rewire(flow_named("stats"), inputs=[str(message_file)], output=tmp_path / "out"))
    results = table(tmp_path / "out" / "publish.csv")
    assert [int(row["msg"]) for row in results] == sorted(int(row["msg"]) for row in results)
    assert [row["obs"] for row in results[:5]] == [
        "temperature",
        "humidity",
        "light",
        "dust",
        "airquality_raw",
    ]
    assert len(table(tmp_path / "out" / "kalman.csv")) == 600


def test_stats_also_reads_the_annotated_rows_that_etl_writes(message_file, tmp_path):
    engine.run(rewire(flow_named("etl"), inputs=[str(message_file)], output=tmp_path / "etl"))
    rows = table(tmp_path / "etl" / "insert.csv")
    lines = tmp_path / "rows.csv"
    lines.write_text("".join(",".join(list(row.values())[1:]) + "\n" for row in rows))
    report = engine.run(rewire(flow_named("stats"), inputs=[str(lines)], output=tmp_path / "stats"))
    assert report.dead_letters == 0
    first = table(tmp_path / "stats" / "kalman.csv")[0]
    assert float(first["value"]) == pytest.approx(30.125 / 30.445 * float(rows[0]["temperature"]), rel=1e-6)


def test_pred_writes_a_class_and_an_error_for_each_message(message_file, tmp_path):
    engine.run(rewire(flow_named("pred"), inputs=[str(message_file)], output=tmp_path / "out"))
    results = table(tmp_path / "out" / "publish.csv")
    assert [row["kind"] for row in results] == ["DTC", "MLR"] * 120
    assert len(table(tmp_path / "out" / "mlr.csv")) == 120


def test_train_makes_models_of_a_whole_file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(generated_table(stream("CITY").dataset, 300).rows(0, 300))
    engine.run(rewire(flow_named("train"), inputs=[str(path)], output=tmp_path / "out"))
    announced = table(tmp_path / "out" / "publish.csv")
    models = [load(tmp_path / "out" / row["model"]) for row in announced]
    assert [type(model) for model in models] == [TreeModel, LinearModel]
    assert len(table(tmp_path / "out" / "annotate.csv")) == 300


@pytest.mark.parametrize("name", ["etl", "stats", "pred", "train"])
def test_a_bundled_flow_runs_at_a_rate_for_a_time_and_loses_nothing(name):
    rate = 20 if name == "train" else 500
    report = engine.run(rewire(flow_named(name), rate=rate), seconds=0.3)
    steps = report.last.steps
    assert report.last.records_in > 0
    assert (report.dead_letters, report.left, report.shed) == (0, 0, {})
    if name != "stats":
        ratio = {"etl": 1, "pred": 2, "train": 2}[name]
        assert steps["publish"].records_out == ratio * report.last.records_in


def test_a_file_can_be_sent_over_and_over_at_a_rate(message_file):
    run = engine.start(rewire(flow_named("pred"), inputs=[str(message_file)], rate=2000))
    wait_until(lambda: run.sample().records_in > 120, "the file once more")
    run.stop()
    assert run.wait().left == 0


def test_train_and_pred_meet_in_the_folder_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_RIOT_MODELS", str(tmp_path / "models"))
    engine.run(rewire(flow_named("train"), rate=50), seconds=0.2)
    assert list((tmp_path / "models").glob("CITY-*.model"))
    report = engine.run(rewire(flow_named("pred"), rate=200), seconds=0.3)
    assert report.last.steps["load"].records_out > 0
    assert report.last.steps["messages"].records_in > 0
    assert report.dead_letters == 0


def test_an_unknown_flow_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(FlowError, match=r"there is no bundled flow 'elt'; flows are .*; did you mean 'etl'"):
        flow_named("elt")
    with pytest.raises(FlowError, match=r"--input names .*gone\.csv': there is no such file"):
        rewire(flow_named("etl"), inputs=[str(tmp_path / "gone.csv")])


def test_records_of_several_writers_come_out_sorted_and_otherwise_as_they_came():
    schema, kept = Schema.of({"msg": int, "kind": str}), Collect()
    sink = InOrder(kept, ["msg", "kind"])
    first, second = sink.open(schema), sink.open(schema)
    for writer, rows in ((second, [(2, "b"), (1, "b")]), (first, [(2, "a"), (1, "c")])):
        columns = {"msg": np.array([n for n, _ in rows]), "kind": Text.of([k for _, k in rows])}
        writer.write(Batch(columns, 2, stamped(2)))
    first.close()
    assert kept.records == []
    second.close()
    assert [tuple(row.values()) for row in kept.records] == [(1, "b"), (1, "c"), (2, "a"), (2, "b")]


@pytest.mark.parametrize("name", ["etl", "stats", "stats-viz", "train", "pred"])
def test_a_picture_says_what_each_step_of_ours_is(name):
    drawn = draw.tree(flow_named(name))
    assert "lambda" not in drawn
    assert "parse: Parse" in drawn or "parse x2: ParseRows" in drawn or name == "train"


def test_a_flow_that_trains_leaves_no_folder_behind_where_nobody_asked_for_its_models(tmp_path):
    code = "from headwater.cli.locate import find_flow; find_flow('riot:train')"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=True)
    assert not list(tmp_path.iterdir())
