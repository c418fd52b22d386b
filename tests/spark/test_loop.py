"""The demonstration of the loop: it closes, and what it tells is what happened."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater_bench.experiments import loop
from headwater_bench.experiments.loop_figures import errors_by_second, rmse_between
from headwater_bench.experiments.turning_city import TurningCity
from headwater_bench.riot.generate import messages

pytest.importorskip("pyspark", reason="pyspark is not installed")


def test_the_air_of_the_city_follows_another_rule_after_the_turn():
    city = TurningCity(rate_hz=100, sensors=56)
    before = city.columns(0, 500)
    city.turn = 250
    after = city.columns(0, 500)
    assert np.array_equal(before["airquality_raw"][:250], after["airquality_raw"][:250])
    hot = after["temperature"] > 28
    assert before["airquality_raw"][250:][hot[250:]].mean() > after["airquality_raw"][250:][hot[250:]].mean() + 5
    assert json.loads(messages(city, 299, 1).tolist()[0])["bt"] == city.time_ms(299)


def test_errors_are_counted_in_the_second_of_their_record():
    schema = Schema.of({"measured": "float32", "predicted": "float32"})
    batch = Batch.of({"measured": [1.0, 5.0, 3.0], "predicted": [1.0, 1.0, 0.0]}, schema)
    batch.stamps[:, 0] = np.array([10.2, 10.7, 13.0]) * 1e9
    assert errors_by_second([batch], int(10e9)) == ([0.5, 3.5], [pytest.approx(8**0.5), 3.0])
    assert rmse_between([batch], int(9e9), int(12e9)) == (2, pytest.approx(2.828))
    assert rmse_between([], 0, 1) == (0, None)


@pytest.mark.thorough
def test_the_loop_closes_twice_and_each_new_model_lowers_the_error(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LEARN_ROWS", 400)
    monkeypatch.setattr(loop, "WATCH_S", 2.0)
    monkeypatch.setattr(loop, "PATIENCE_S", 1200.0)
    answer = loop.run(tmp_path, rate=100.0)
    assert answer["complete"]
    published, first, changed, second = (phase["rmse"] for phase in answer["phases"])
    assert first < published / 3
    assert changed > 3 * first
    assert second < changed / 3
    assert [each["regression"]["revision"] for each in answer["trained"]] == [1, 2]
    assert answer["trained"][1]["regression"]["before_rmse"] > 3 * answer["trained"][1]["regression"]["rmse"]
    told = answer["flows"]["edge pred"]
    assert told["dead_letters"] == 2
    assert "cut short" in told["refused"][0]
    assert "not newer" in told["refused"][1]
    assert answer["flows"]["spark stats"]["records_out"]["publish"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"table", "stats", "models", "loop.csv", "loop.png"}
    assert len(list((tmp_path / "table").glob("location=*/*.parquet"))) > 1
