"""Models announced on a real MQTT broker reach a PRED that runs, and only those that it should take."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import engine
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.io import Collect, Mqtt
from headwater.models.announce import announce, announcements
from headwater.models.model import Leaf, LinearModel, TreeModel
from headwater_bench.experiments.broker import broker
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.labels import CLASSES
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import Messages
from waiting import wait_until

TEXT = Schema.of({"kind": str, "model": str})


def always(klass: int, revision: int) -> TreeModel:
    return TreeModel(CITY.features, CLASSES, (Leaf(klass),), revision=revision)


def constant(value: float, revision: int, target: str = CITY.features[-1]) -> LinearModel:
    return LinearModel(CITY.features[:-1], target, (0.0,) * 4, value, revision=revision)


@pytest.fixture(scope="module")
def url():
    with broker() as url:
        yield url


class Watched:
    """A running PRED and what it has put out."""

    report: Any = None

    def __init__(self, url: str, topic: str) -> None:
        self.results, self.forecasts = Collect(), Collect()
        updates = announcements(url, topic)
        self.run = engine.start(
            pred(Messages("CITY", 300), updates=updates, publish=self.results, forecasts=self.forecasts)
        )

    def latest(self) -> tuple[float, float] | None:
        """Return the class and the forecast that the newest records got."""
        if not self.forecasts.batches or not self.results.batches:
            return None
        classes = [batch for batch in self.results.batches[-20:] if batch["kind"].tolist()[-1] == "DTC"]
        return (classes[-1]["result"][-1], self.forecasts.batches[-1]["predicted"][-1]) if classes else None

    def refused(self) -> int:
        return sum(step.dead_letters for step in self.run.sample().steps.values())


@contextmanager
def running(url: str, topic: str):
    watched = Watched(url, topic)
    try:
        yield watched
    finally:
        watched.run.stop()
        watched.report = watched.run.wait()


def publish(url: str, topic: str, *texts: str) -> None:
    writer = Mqtt(url, f"{topic}/{{kind}}", payload="text", qos=1).open(TEXT)
    writer.write(Batch.of({"kind": ["any"] * len(texts), "model": list(texts)}, TEXT))
    writer.close()


def test_a_model_announced_on_mqtt_is_used_without_a_restart_and_again_after_one(url):
    with running(url, "swap") as edge:
        wait_until(lambda: edge.latest() is not None)
        assert edge.latest() != (2.0, 5.0)
        announce([always(2, 1), constant(5.0, 1)], url, "swap")
        wait_until(lambda: edge.latest() == (2.0, 5.0))
        announce([always(1, 2), constant(6.0, 2)], url, "swap")
        wait_until(lambda: edge.latest() == (1.0, 6.0))
    assert edge.report.dead_letters == 0
    with running(url, "swap") as edge:  # what was announced last waits for it at the broker
        wait_until(lambda: edge.latest() == (1.0, 6.0))


def text(model) -> str:
    return model.to_json().decode()


OTHER = LinearModel(("a", "b", "c", "d"), CITY.features[-1], (1.0,) * 4, 0.0, revision=9)
TURNED = TreeModel(CITY.features[::-1], CLASSES, (Leaf(0),), revision=9)
REFUSED = {
    "corrupt": {
        text(always(0, 9))[:-5]: "an announced model is not a model file, or is cut short",
        json.dumps({**json.loads(text(OTHER)), "version": 2}): "expected headwater-model 1, got headwater-model 2",
    },
    "misfit": {
        text(OTHER): "'mlr' reads ['temperature', 'humidity', 'light', 'dust']; the model is for ['a', 'b', 'c', 'd']",
        text(TURNED): "'airquality_raw']; the model is for ['airquality_raw', 'dust', 'light', 'humidity', 'temp",
        text(constant(1.0, 9, target="dust")): "step 'mlr' predicts 'airquality_raw'; the model is for 'dust'",
    },
    "older": {
        text(always(0, 4)): "step 'dtc' uses revision 5; an announced model is revision 4, which is not newer",
        text(constant(9.0, 5)): "step 'mlr' uses revision 5; an announced model is revision 5, which is not newer",
        text(always(0, 0)): "step 'dtc' uses revision 5; an announced model is revision 0, which is not newer",
    },
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_model_that_is_no_good_is_refused_with_a_reason_and_the_old_one_stays(url, why):
    with running(url, why) as edge:
        announce([always(2, 5), constant(5.0, 5)], url, why)
        wait_until(lambda: edge.latest() == (2.0, 5.0))
        publish(url, why, *REFUSED[why])
        wait_until(lambda: edge.refused() == len(REFUSED[why]))
        before = edge.run.sample().records_in
        wait_until(lambda: edge.run.sample().records_in > before + 100)
        assert edge.latest() == (2.0, 5.0)
        announce([always(2, 5)], url, why)  # the one in use, said again: nothing to refuse
        announce([always(1, 6)], url, why)
        wait_until(lambda: edge.latest() == (1.0, 5.0))
    assert edge.report.dead_letters == len(REFUSED[why])
    reasons = [letter["error"] for letter in edge.report.examples]
    for words in REFUSED[why].values():
        assert any(words in reason for reason in reasons), (words, reasons)
