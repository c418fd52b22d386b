"""PRED on Spark takes over a model that is announced while it runs, and refuses what is no good."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import engine
from headwater.io import Collect, Items
from headwater.models.announce import announce, announcements
from headwater.models.model import Leaf, LinearModel, TreeModel
from headwater_bench.experiments.broker import broker
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.labels import CLASSES
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import Messages, repeated
from waiting import wait_until

pytest.importorskip("pyspark", reason="pyspark is not installed")

CITY_MESSAGES = messages(stream("CITY"), 0, 300)


def models(revision: int, klass: int, value: float) -> list[TreeModel | LinearModel]:
    tree = TreeModel(CITY.features, CLASSES, (Leaf(klass),), revision=revision)
    return [tree, LinearModel(CITY.features[:-1], CITY.features[-1], (0.0,) * 4, value, revision=revision)]


def test_a_model_announced_on_mqtt_is_used_by_a_running_pred_and_an_older_one_is_not(spark):
    from headwater import spark as runner

    results, forecasts = Collect(), Collect()

    def latest() -> tuple[float, float] | None:
        classes = [batch for batch in results.batches[-20:] if batch["kind"].tolist()[-1] == "DTC"]
        if not classes or not forecasts.batches:
            return None
        return classes[-1]["result"][-1], forecasts.batches[-1]["predicted"][-1]

    with broker() as url:
        flow = pred(Messages("CITY", 200), updates=announcements(url), publish=results, forecasts=forecasts)
        run = runner.start(flow)
        try:
            wait_until(lambda: latest() is not None)
            announce(models(2, 3, 5.0), url)
            wait_until(lambda: latest() == (3.0, 5.0))
            announce(models(1, 0, 1.0), url)
            wait_until(lambda: run.sample().steps["mlr"].dead_letters and run.sample().steps["dtc"].dead_letters)
            seen = len(forecasts.batches)
            wait_until(lambda: len(forecasts.batches) > seen + 1)
            assert latest() == (3.0, 5.0)
        finally:
            run.stop()
            report = run.wait()
    assert [letter["step"] for letter in report.examples] == ["dtc", "mlr"]
    assert all("is revision 1, which is not newer" in letter["error"] for letter in report.examples)
    assert report.dead_letters == 2


def test_what_is_refused_is_told_once_however_many_copies_of_the_step_there_are(spark):
    from headwater import spark as runner

    tree, line = models(5, 1, 2.0)
    foreign = [
        TreeModel(CITY.features[::-1], CLASSES, (Leaf(0),), revision=6),
        LinearModel(CITY.features[:-1], "rain", (0.0,) * 4, 1.0, revision=6),
    ]
    cut_short = line.to_json()[:-9].decode()
    every: list[Any] = [*models(4, 0, 1.0), *foreign, tree, line]
    announced = [{"model": model.to_json().decode()} for model in every]

    def played(run, **options):
        letters = Collect()
        updates = Items([{"model": cut_short}, *announced])
        flow = pred(repeated(CITY_MESSAGES, 1e6, count=300), tree=tree, regression=line, updates=updates)
        flow.dead_letters.write("letters", letters)
        report = run(flow, **options)
        counts = {
            name: (step.records_in, step.records_out, step.dead_letters) for name, step in report.last.steps.items()
        }
        return counts, sorted((letter["step"], letter["error"], letter["record"]) for letter in letters.records)

    expected, got = played(engine.run), played(runner.run, buckets=3)
    assert got == expected
    assert [step for step, _, _ in got[1]] == ["dtc", "dtc", "load", "mlr", "mlr"]
