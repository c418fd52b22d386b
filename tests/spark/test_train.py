"""TRAIN on Spark: what it learns, what it keeps, and that a running PRED takes it over."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import col, engine
from headwater.errors import InputError, ModelError
from headwater.io import Collect, Items
from headwater.models.announce import announcements
from headwater.models.model import LinearModel, TreeModel, load
from headwater.models.store import ModelStore
from headwater_bench.experiments.broker import broker
from headwater_bench.riot import samples
from headwater_bench.riot.datasets import CITY, TAXI, Dataset
from headwater_bench.riot.generate import stream
from headwater_bench.riot.labels import class_borders, quartile_classes
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import Messages
from headwater_bench.riot.train_regression import train_regression
from headwater_bench.riot.train_tree import train_tree
from waiting import PATIENCE_S

train = pytest.importorskip("headwater_bench.mllib.train", reason="pyspark is not installed")

ROWS = 4000


@pytest.fixture(scope="module", autouse=True)
def spark(spark):
    return spark


def columns(dataset: Dataset, count: int = ROWS) -> dict[str, np.ndarray]:
    """Return a table as ETL writes it: 32-bit observations, times in milliseconds."""
    drawn = stream(dataset.name).columns(0, count)
    return {"timestamp": np.arange(count) * 1000} | {name: drawn[name].astype("f4") for name in dataset.features}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table in two folders of partitions, of two files each."""
    folder = tmp_path_factory.mktemp("table")
    whole = columns(CITY)
    for part in range(4):
        place = folder / f"hour={part // 2}"
        place.mkdir(exist_ok=True)
        quarter = slice(part * ROWS // 4, (part + 1) * ROWS // 4)
        pq.write_table(pa.table({name: column[quarter] for name, column in whole.items()}), place / f"{part}.parquet")
    return folder


def matrix(dataset: Dataset, start: int = 0, stop: int = ROWS) -> np.ndarray:
    drawn = columns(dataset)
    return np.array([drawn[name][start:stop] for name in dataset.features], np.float64)


def least_squares(rows: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(np.vstack([rows[:-1], np.ones(rows.shape[1])]).T, rows[-1], rcond=None)[0]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ModelStore(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def trained(table, store):
    """The second revision of both models, measured on rows that it did not learn from."""
    trainer = train.Trainer(table, store, trainer="mllib")
    trainer.train(train.Span(end=500_000))
    return trainer.train(train.Span(500_000, 3_000_000), test=train.Span(3_000_000))


def test_the_regression_of_a_span_of_the_table_is_ordinary_least_squares(trained):
    line, _ = trained
    expected = least_squares(matrix(CITY, 500, 3000))
    np.testing.assert_allclose([*line.coefficients, line.intercept], expected, rtol=1e-6)


def test_the_tree_tells_the_quartiles_of_its_own_rows_as_well_as_the_benchmarks_trainer_does(trained):
    _, tree = trained
    rows = matrix(CITY, 500, 3000)
    labels = quartile_classes(rows[-1])
    like_j48 = train_tree(rows, labels, list(CITY.features), list(tree.classes))
    assert (tree.predict(rows) == labels).mean() >= (like_j48.predict(rows) == labels).mean() > 0.99


def test_each_training_is_a_revision_measured_beside_the_one_before(trained, store):
    (line, tree), rows = trained, matrix(CITY, 3000)
    assert (line.revision, tree.revision) == (2, 2)
    assert store.latest("CITY-MLR").to_json() == line.to_json()
    assert (line.facts["rows"], line.facts["tested"]) == (2500, 1000)
    for name, model in (("rmse", line), ("before_rmse", load(store.path("CITY-MLR", 1)))):
        error = rows[-1] - model.predict(rows[:-1])
        assert line.facts[name] == pytest.approx(np.sqrt((error**2).mean()))
    labels = np.searchsorted(class_borders(matrix(CITY, 500, 3000)[-1]), rows[-1], side="right")
    for name, model in (("accuracy", tree), ("before_accuracy", load(store.path("CITY-DTC", 1)))):
        assert tree.facts[name] == pytest.approx((model.predict(rows) == labels).mean())


def test_what_spark_computes_with_a_portable_model_is_what_it_says_itself(table, spark, trained):
    for model in trained:
        by_column = spark.read.parquet(str(table)).orderBy("timestamp").select(train.prediction(model)).toArrow()
        features = matrix(CITY)[: len(model.columns)]
        np.testing.assert_allclose(np.asarray(by_column.column(0)), model.predict(features), rtol=1e-9)


def assert_engines_models(line, tree, rows):
    """Hold models that Spark trained against those that the engine learns from the same rows."""
    expected = train_regression(rows[:-1].copy(), rows[-1], list(CITY.features))
    assert [weight == 0 for weight in line.coefficients] == [weight == 0 for weight in expected.coefficients]
    np.testing.assert_allclose(
        [*line.coefficients, line.intercept], [*expected.coefficients, expected.intercept], rtol=1e-9
    )
    assert tree.nodes == train_tree(rows, quartile_classes(rows[-1]), list(CITY.features), list(tree.classes)).nodes


def test_the_exact_trainers_learn_what_the_engine_learns_from_a_table_in_parts(table, tmp_path):
    line, tree = train.Trainer(table, ModelStore(tmp_path)).train(train.Span(500_000, 3_000_000))
    assert_engines_models(line, tree, matrix(CITY, 500, 3000))
    assert (line.facts["rows"], tree.facts["accuracy"] > 0.99) == (2500, True)


@pytest.mark.skipif(samples.folder() is None, reason="the benchmark's files are not here")
def test_the_exact_trainers_learn_the_benchmarks_own_models(spark, tmp_path):
    rows = benchmarks_rows()
    frame = spark.createDataFrame(
        pa.table({"timestamp": np.arange(1000)} | dict(zip(CITY.features, rows, strict=True)))
    )
    line, tree = train.Trainer(frame, ModelStore(tmp_path)).train()
    assert_engines_models(line, tree, rows)


def benchmarks_rows():
    lines = (samples.folder() / "derived" / "train_input_data_1000.csv").read_text().split()
    return np.array([[float(x) for x in line.split(",")[4:9]] for line in lines]).T


@pytest.mark.skipif(samples.folder() is None, reason="the benchmark's files are not here")
def test_models_of_the_benchmarks_own_rows(spark, tmp_path):
    rows = benchmarks_rows()
    frame = spark.createDataFrame(
        pa.table({"timestamp": np.arange(1000)} | dict(zip(CITY.features, rows, strict=True)))
    )
    line, tree = train.Trainer(frame, ModelStore(tmp_path), trainer="mllib").train()
    np.testing.assert_allclose([*line.coefficients, line.intercept], least_squares(rows), rtol=1e-6)
    labels = quartile_classes(rows[-1])
    like_j48 = train_tree(rows, labels, list(CITY.features), list(tree.classes))
    assert (tree.predict(rows) == labels).sum() >= (like_j48.predict(rows) == labels).sum()


def test_columns_far_from_zero_without_variance_or_with_gaps_do_no_harm(spark, tmp_path):
    rng = np.random.default_rng(3)
    time, distance = 1e7 + rng.normal(0, 1, 800), rng.normal(0, 1e-3, 800)
    fare = 1e6 + 2 * time - 5000 * distance + rng.normal(0, 0.1, 800)
    holes = pa.array(np.where(np.arange(800) % 10 == 0, np.nan, fare), from_pandas=True)
    frame = spark.createDataFrame(
        pa.table(
            {"timestamp": np.arange(800), "trip_time_in_secs": time, "trip_distance": distance, "fare_amount": holes}
        )
    )
    line, _ = train.Trainer(frame, ModelStore(tmp_path), TAXI, trainer="mllib").train()
    kept = np.arange(800) % 10 != 0
    centred = np.stack([time - time[kept].mean(), distance, fare])[:, kept]
    np.testing.assert_allclose(line.coefficients, least_squares(centred)[:2], rtol=1e-6)
    assert line.facts["rows"] == 720
    flat = frame.withColumn("trip_distance", train.F.lit(7.0)).withColumn("fare_amount", train.F.lit(5.0))
    last, leaf = train.Trainer(flat, ModelStore(tmp_path), TAXI, trainer="mllib").train()
    assert last.coefficients[1] == 0.0
    assert (last.predict(np.array([[1e7], [7.0]]))[0], len(leaf.nodes)) == (pytest.approx(5.0), 1)


def test_a_span_without_rows_and_a_table_without_the_columns_are_told(table, spark, tmp_path):
    with pytest.raises(ModelError, match=r"no rows to learn from in timestamp \[9000000, …\)"):
        train.Trainer(table, ModelStore(tmp_path)).train(train.Span(9_000_000))
    with pytest.raises(ModelError, match="TAXI needs columns 'fare_amount', 'trip_distance'"):
        train.Trainer(table, ModelStore(tmp_path), TAXI).train()
    with pytest.raises(InputError, match=r"cannot learn from table .*nowhere: no such folder, or no Parquet file"):
        train.Trainer(tmp_path / "nowhere", ModelStore(tmp_path)).train()


def test_the_command_trains_on_a_parquet_table_and_on_csv(table, tmp_path, typed):
    code, out, _ = typed("run", "riot:train", "--on", "spark", "--input", str(table), "--output", "m", "--json")
    told = json.loads(out)
    assert (code, told["records_in"], told["records_out"]) == (0, ROWS, {"publish": 2})
    assert [(step["name"], step["in"], step["out"]) for step in told["steps"]] == [
        ("read", ROWS, ROWS),
        ("mlt", ROWS, 1),
        ("dtt", ROWS, 1),
        ("publish", 2, 2),
    ]
    lines = [
        "msg," + ",".join(columns(CITY)),
        *(",".join(map(str, row)) for row in zip(range(ROWS), *columns(CITY).values(), strict=True)),
    ]
    lines[5] = lines[5].rpartition(",")[0] + ","  # a row that lacks its last feature
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    mllib = ("--input", "rows.csv", "--output", "m", "--trainer", "mllib")
    code, out, _ = typed("run", "riot:train", "--on", "spark", *mllib)
    assert code == 0
    assert "CITY-MLR-000002.model: " in out
    assert "rows 3999" in out
    assert "before rmse" in out
    assert (tmp_path / "m" / "publish.csv").read_text().split() == [
        "msg,kind,model",
        "1,MLR,CITY-MLR-000002.model",
        "1,DTC,CITY-DTC-000002.model",
    ]
    line, tree = (load(ModelStore(tmp_path / "m").path(name, 1)) for name in ("CITY-MLR", "CITY-DTC"))
    assert_engines_models(line, tree, matrix(CITY))


def test_what_the_command_expects_is_told(table, tmp_path, typed):
    on_spark = ("run", "riot:train", "--on", "spark")
    (tmp_path / "short.csv").write_text("1,2,3\n")
    for words, why in [
        ((), "learns from a table: give it as --input"),
        (("--input", str(table)), "and as --output a folder for the models"),
        (("--input", "nowhere", "--output", "m"), "there is no such folder or file"),
        (("--input", str(table), "--output", "m", "--trainer", "mlib"), "there is no trainer 'mlib'"),
        (("--input", str(table), "--output", "m", "--for", "3s"), "--for means nothing with riot:train on Spark"),
        (("--input", "short.csv", "--output", "m"), "has 3 cells where CITY's annotated rows have 11"),
    ]:
        code, _, said = typed(*on_spark, *words)
        assert code != 0
        assert why in " ".join(said.split())
    code, out, _ = typed("show", "riot:train", "--on", "spark")
    assert (code, "the engine's tree" in out) == (0, True)


def test_rows_are_left_out_by_an_expression_of_the_flow(table, tmp_path):
    held = (col.temperature > 20) & (col.timestamp < 3_000_000)
    line, _ = train.Trainer(table, ModelStore(tmp_path), where=held).train()
    drawn = columns(CITY)
    assert line.facts["rows"] == ((drawn["temperature"] > 20) & (drawn["timestamp"] < 3_000_000)).sum()
    with pytest.raises(ModelError, match="cannot tell it as the engine would"):
        train.Trainer(table, ModelStore(tmp_path), where=col.temperature.round() == 20).train()
    with pytest.raises(ModelError, match="true or false"):
        train.Trainer(table, ModelStore(tmp_path), where=col.temperature + 1).train()


def test_a_running_pred_takes_over_what_triggers_made_mllib_train(table, tmp_path):
    with broker() as url:
        forecasts = Collect()
        flow = pred(Messages("CITY", 200), updates=announcements(url), forecasts=forecasts)
        edge = engine.start(flow)
        try:
            trainer = train.Trainer(table, ModelStore(tmp_path), broker=url)
            asked = Items([{"start": 5, "end": 0}, {"start": 0, "end": 2_000_000}], train.TRIGGERS)  # no rows, and some
            revisions = [[model.revision for model in models] for models in trainer.follow(asked)]
            line = trainer.store.latest("CITY-MLR")
            until = time.monotonic() + PATIENCE_S
            while edge.sample().steps["load"].records_out < 2 * len(revisions):
                assert time.monotonic() < until, "no model arrived"
                time.sleep(0.05)
            seen = len(forecasts.batches)
            while len(forecasts.batches) < seen + 5:
                assert time.monotonic() < until, "PRED stands still"
                time.sleep(0.05)
        finally:
            edge.stop()
            report = edge.wait()
    assert revisions == [[1, 1]]
    assert report.dead_letters == 0
    assert isinstance(line, LinearModel)
    assert isinstance(trainer.store.latest("CITY-DTC"), TreeModel)
    rows = {record["msg"]: record for record in forecasts.records[-5:]}
    drawn = stream("CITY").columns(0, max(rows) + 1)
    for number, record in rows.items():
        features = np.array([[drawn[name][number]] for name in CITY.features[:-1]], np.float64)
        assert record["predicted"] == pytest.approx(line.predict(features)[0], rel=1e-4)
