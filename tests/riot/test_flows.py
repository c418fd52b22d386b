"""The dataflows as a whole: executions per message, ratios at the sinks, and what is not a message."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
import reference

from headwater import engine
from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.errors import FlowError
from headwater.io import Collect, Items
from headwater.models.folder import ModelFolder
from headwater.models.model import Fork, Leaf, LinearModel, TreeModel, load, save
from headwater.steps.bloom import BloomFilter
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY, FIT, GRID, TAXI, Dataset
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.labels import CLASSES
from headwater_bench.riot.parse import ParseRows, ParseXml
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MESSAGES, Messages, repeated
from headwater_bench.riot.stats import stats
from headwater_bench.riot.train import generated_table, train, triggers
from waiting import PATIENCE_S

COUNT = 600


def source(dataset: Dataset = CITY, count: int = COUNT):
    return repeated(messages(stream(dataset.name), 0, 300), 1e9, count=count)


def executions(report) -> float:
    """Count what the steps took in for each message, as the engine's own metrics have it."""
    steps = report.last.steps.values()
    return sum(step.records_in for step in steps if step.name not in ("messages", "triggers")) / COUNT


@pytest.fixture(params=["engine", "threads"])
def runner(request):
    return request.param


def test_etl_runs_29_steps_for_a_message_and_puts_it_out_twice(runner):
    report = engine.run(etl(source()), on=runner)
    assert executions(report) == 29
    assert report.last.records_out == {"insert": COUNT, "publish": COUNT}
    assert report.dead_letters == 0


def test_stats_runs_41_steps_for_a_message_and_puts_out_15_results_once_warm(runner):
    one_sensor = Text.of(messages(stream("CITY"), 0, 1).tolist())
    report = engine.run(stats(repeated(one_sensor, 1e9, count=COUNT)), on=runner)
    warming = 10 * 5  # predictions that the first ten messages of a sensor do not give
    assert report.last.records_out == {"publish": 15 * COUNT - warming}
    assert executions(report) * COUNT == 41 * COUNT - warming


def test_pred_runs_7_2_steps_for_a_message_and_puts_out_two_results(runner):
    one_sensor = Text.of(messages(stream("CITY"), 0, 1).tolist())
    report = engine.run(pred(repeated(one_sensor, 1e9, count=COUNT)), on=runner)
    assert executions(report) == pytest.approx(7.2)
    assert report.last.records_out == {"publish": 2 * COUNT}


def test_train_runs_6_steps_for_a_trigger_and_announces_two_models(runner, tmp_path):
    report = engine.run(train(triggers(1e9, count=30), models=tmp_path), on=runner)
    assert executions(report) * COUNT == 6 * 30
    assert report.last.records_out == {"publish": 60}
    models = [load(path) for path in sorted(tmp_path.glob("CITY-*.model"))]
    assert {type(model) for model in models} == {TreeModel, LinearModel}
    assert all(model.columns[:4] == CITY.features[:4] for model in models)


@pytest.mark.parametrize("dataset", [TAXI, FIT], ids=lambda dataset: dataset.name)
def test_etl_and_pred_also_run_on_other_streams(dataset):
    rows, results = Collect(), Collect()
    report = engine.run(etl(source(dataset), dataset=dataset, insert=rows))
    assert report.last.records_out == {"insert": COUNT, "publish": COUNT}
    engine.run(pred(source(dataset), dataset=dataset, publish=results))
    assert len(results.records) == 2 * COUNT
    assert {record["label"] for record in results.records} <= {*CLASSES, ""}


def test_a_taxi_value_out_of_range_stays_missing_and_is_written_null():
    written, rows = Collect(), Collect()
    engine.run(etl(source(TAXI), dataset=TAXI, publish=written, insert=rows))
    by_number = {row["msg"]: row for row in rows.records}
    low, high = TAXI.ranges["tip_amount"]
    missing = 0
    for record in written.records:
        values = {entry["n"]: entry.get("v") for entry in json.loads(record["senml"])["e"]}
        tip = by_number[record["msg"]]["tip_amount"]
        assert (values["tip_amount"] == "null") == (tip is None)
        assert tip is None or low <= tip <= high
        missing += tip is None
    assert 0.3 * COUNT < missing < 0.8 * COUNT


def test_etl_says_what_its_plain_twin_says():
    rows = Collect()
    engine.run(etl(source(), insert=rows, instances={"parse": 2, "interpolate": 3, "join": 2}), take=7)
    filled = reference.Interpolation(5)
    by_number = {row["msg"]: row for row in rows.records}
    texts = messages(stream("CITY"), 0, 300).bytes_list()
    fields = {f.name: "text" if f.name in ("source", "longitude", "latitude") else "float" for f in CITY.fields}
    singles = 0
    for number in range(COUNT):
        time_ms, values = reference.senml(texts[number % 300], fields)
        row = by_number[number]
        assert (row["timestamp"], row["source"]) == (time_ms, values["source"])
        for name in CITY.numbers:
            value = values[name]
            given = value if reference.is_inside(value, *CITY.ranges[name]) else None
            if number < 300 or given is not None:  # with two parsers, the second round may overtake the first
                expected = filled.step((values["source"], name), given)
                if given is not None:
                    assert row[name] == pytest.approx(expected, rel=1e-6)
                    singles += 1
    assert singles > 2000


def test_etl_gives_the_same_rows_however_it_is_run():
    found = []
    for options in ({"take": 1}, {"take": "all"}, {"on": "threads"}, {"take": 50, "workers": 1}):
        rows = Collect()
        engine.run(etl(source(count=300), insert=rows), **options)
        found.append(sorted(map(str, rows.records)))
    assert all(rows == found[0] for rows in found)


@pytest.mark.parametrize("dataset", [CITY, TAXI, FIT, GRID], ids=lambda dataset: dataset.name)
def test_wide_rows_give_what_single_observations_give(dataset):
    found = []
    for wide in (False, True):
        rows, written = Collect(), Collect()
        engine.run(etl(source(dataset), dataset=dataset, insert=rows, publish=written, wide=wide), workers=1)
        found.append((sorted(map(str, rows.records)), sorted(map(str, written.records))))
    assert found[0] == found[1]


BAD = {
    "cut short": '{"e":[{"n":"source","sv":"a"}',
    "empty": " ",
    "nested wrongly": '{"e":[[]],"bt":1}',
    "no time": '{"e":[]}',
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
def test_a_message_that_is_none_is_a_dead_letter_and_the_flow_goes_on(message):
    good = messages(stream("CITY"), 0, 3).tolist()
    texts = Text.of([good[0], message, good[1], good[2]])
    report = engine.run(etl(repeated(texts, 1e9, count=4)))
    assert report.last.records_out == {"insert": 3, "publish": 3}
    assert report.dead_letters == 1
    assert report.examples[0]["step"] == "parse"
    assert json.loads(report.examples[0]["record"])["message"] == message


def test_a_value_that_is_not_finite_is_a_dead_letter_and_does_not_poison_the_filter():
    good = messages(stream("CITY"), 0, 1).tolist()[0]
    values = json.loads(good)
    values["e"][3]["v"] = "NaN"
    results = Collect()
    texts = Text.of([good, json.dumps(values), good])
    report = engine.run(stats(repeated(texts, 1e9, count=30), smoothed=results))
    assert report.dead_letters == 10
    assert "'temperature' is not finite" in report.examples[0]["error"]
    assert all(np.isfinite(record["value"]) for record in results.records)


def test_messages_in_xml_give_the_rows_that_json_gives():
    made, count = stream("CITY"), 20
    columns = made.columns(0, count)
    lines = []
    for i, time_ms in enumerate(columns["time_ms"].tolist()):
        values = {field.name: columns[field.name].tolist()[i] for field in CITY.fields}
        kinds = {field.name: "vs" if field.kind == "sv" else "v" for field in CITY.fields}
        records = "".join(f'<senml n="{name}" {kinds[name]}="{value}"/>' for name, value in values.items())
        lines.append(f'<sensml><senml bt="{time_ms}"/>{records}</sensml>')
    batch = Batch.of({"msg": np.arange(count + 1), "message": [*lines, "<sensml>"]}, MESSAGES)
    parsed: Any = ParseXml(CITY).process(batch, 0)
    (_, rows), (_, letters) = parsed
    texts = [*messages(made, 0, count).tolist(), "{"]
    expected = ParseRows(CITY).process(Batch.of({"msg": np.arange(count + 1), "message": texts}, MESSAGES), 0)
    assert rows.rows() == expected[0][1].rows()
    assert "no element found" in letters.rows()[0]["error"]


def test_an_unknown_sensor_is_a_dead_letter_of_the_annotation():
    good = messages(stream("CITY"), 0, 1).tolist()[0]
    values = json.loads(good)
    values["e"][0]["sv"] = "nobody"
    report = engine.run(etl(repeated(Text.of([good, json.dumps(values)]), 1e9, count=10)))
    assert report.last.records_out == {"insert": 5, "publish": 5}
    assert report.dead_letters == 5
    assert "sensor 'nobody' is not among" in report.examples[0]["error"]


def test_stats_can_be_told_which_sensors_to_know():
    known = BloomFilter(1000, 1e-6)
    known.add(Text.of([json.loads(messages(stream("CITY"), 0, 1).tolist()[0])["e"][0]["sv"]]))
    report = engine.run(stats(repeated(messages(stream("CITY"), 0, 20), 1e9, count=20), known=known))
    assert report.last.records_out == {"publish": 10}
    assert report.dead_letters == 19 * 5


def test_a_model_published_while_pred_runs_is_used_from_then_on(tmp_path):
    from headwater.operators import build

    always = TreeModel(CITY.features, ("BAD", "GOOD"), (Fork(4, -1e9, 1, 2), Leaf(0), Leaf(1)))
    save(always, tmp_path / "new.model")
    flow = pred(source(), updates=Items([{"model": "new.model"}]), models=tmp_path)
    rows = build(flow.steps["parse"]).process(source().open(print).read(20, 5.0), 0)
    loaded = build(flow.steps["load"]).process(Items([{"model": "new.model"}]).open(print).read(1, 1.0), 0)
    classify = build(flow.steps["dtc"])
    before = classify.process(rows, 0)["result"].tolist()
    assert classify.process(loaded[0][1], 1) is None
    after = classify.process(rows, 0)["result"].tolist()
    assert set(before) == {0.0, 1.0, 2.0}
    assert set(after) == {1.0}
    again = build(flow.steps["dtc"])
    again.restore(classify.snapshot())
    assert again.process(rows, 0)["result"].tolist() == after


def test_models_that_train_writes_reach_a_running_pred(tmp_path):
    running = engine.start(pred(Messages("CITY", 200), updates=ModelFolder(tmp_path, "20 ms"), models=tmp_path))
    try:
        engine.run(train(triggers(1e9, count=3), models=tmp_path))
        until = time.monotonic() + PATIENCE_S
        while (loaded := running.sample().steps["load"].records_out) < 6:
            assert time.monotonic() < until, f"only {loaded} models arrived"
            time.sleep(0.02)
    finally:
        running.stop()
        report = running.wait()
    steps = report.last.steps
    assert steps["load"].records_out >= 6
    assert steps["dtc"].records_in == steps["parse"].records_out + steps["load"].records_out
    assert report.dead_letters == 0


def test_a_model_that_is_missing_corrupt_or_of_other_columns_is_a_dead_letter(tmp_path):
    (tmp_path / "corrupt.model").write_bytes(b"{")
    save(TreeModel(("a",), ("x",), (Leaf(0),)), tmp_path / "other.model")
    names = ["gone.model", "corrupt.model", "other.model", "../../etc/passwd"]
    updates = Items([{"model": name} for name in names])
    results = Collect()
    report = engine.run(pred(source(), updates=updates, models=tmp_path, publish=results))
    assert report.dead_letters == 4
    assert len(results.records) == 2 * COUNT
    errors = " ".join(letter["error"] for letter in report.examples)
    assert "No such file" in errors
    assert "corrupt.model is not a model file" in errors
    assert "the model is for ['a']" in errors


def test_training_on_rows_that_are_no_numbers_is_a_dead_letter(tmp_path):
    from headwater_bench.riot.learn import Table

    rows = generated_table(CITY, 50).rows(0, 50).replace(b",", b",x", 5)
    report = engine.run(train(triggers(1e9, count=3, rows=20), models=tmp_path, table=Table(rows)))
    assert report.dead_letters + report.last.records_out["publish"] == 6
    assert report.dead_letters >= 2


def test_instances_of_a_step_that_is_not_there_are_refused():
    with pytest.raises(FlowError, match=r"there is no step 'pares'.*did you mean 'parse'"):
        etl(source(), instances={"pares": 2})


def test_the_instances_are_those_of_edgewise_unless_told(tmp_path):
    def several(flow):
        return {step.name: step.parallel for step in flow.steps.values() if step.parallel > 1}

    assert several(etl(source())) == {"publish": 2}
    assert several(stats(source())) == {"publish": 3}
    assert several(pred(source())) == {"parse": 2, "publish": 3}
    assert several(train(triggers(1), models=tmp_path)) == {"read": 2, "mlt": 2, "dtt": 2}
    assert several(etl(source(), instances={"parse": 4, "publish": 1})) == {"parse": 4}


def test_an_operator_moved_in_the_middle_goes_on_where_it_was():
    from headwater.operators import build

    flow = etl(source())
    tall = build(flow.steps["parse"]).process(source().open(print).read(40, 5.0), 0)
    whole = build(flow.steps["join"]).process(build(flow.steps["interpolate"]).process(tall, 0), 0)
    first, second = build(flow.steps["join"]), build(flow.steps["join"])
    filled = build(flow.steps["interpolate"]).process(tall, 0)
    rows = [first.process(filled.slice(0, 100), 0)]
    second.restore(first.snapshot())
    rows.append(second.process(filled.slice(100, 240), 0))
    assert [row for batch in rows for row in batch.rows()] == whole.rows()


def test_wide_stats_give_the_results_of_single_observations():
    few = messages(CityStream(sensors=12), 0, 300)
    single, whole = Collect(), Collect()
    engine.run(stats(repeated(few, 1e9, count=COUNT), publish=single), workers=1)
    report = engine.run(stats(repeated(few, 1e9, count=COUNT), publish=whole, wide=True), workers=1)
    expected = {(row["msg"], row["kind"], row["obs"]): row["result"] for row in single.records}
    found = {(row["msg"], row["kind"], name): row[name] for row in whole.records for name in CITY.numbers}
    assert found == expected
    assert len(found) > 13 * COUNT  # most predictions are among them
    assert report.last.records_out == {"publish": len(found) // 5}


def test_wide_stats_also_smooth():
    single, whole = Collect(), Collect()
    engine.run(stats(source(), smoothed=single), workers=1)
    engine.run(stats(source(), smoothed=whole, wide=True), workers=1)
    expected = {(row["msg"], row["obs"]): row["value"] for row in single.records}
    assert {(row["msg"], name): row[name] for row in whole.records for name in CITY.numbers} == expected
