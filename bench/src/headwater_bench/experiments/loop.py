"""The loop: sensors, a gateway that cleans and predicts, Spark that keeps, counts and learns, and the model's way back.

A real broker lies in between. The gateway runs ETL and PRED on the embedded engine; Spark runs ETL into a partitioned
table, STATS into another, and TRAIN with MLlib. Then the city changes, and the loop goes round once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from headwater import engine
from headwater.data.batch import Batch
from headwater.flow import Flow, Schema, Stream
from headwater.flow.endpoints import Source
from headwater.io import Collect, Mqtt, ParquetTable
from headwater.models.announce import announcements
from headwater.models.model import Model
from headwater.models.store import ModelStore
from headwater_bench.experiments.broker import broker
from headwater_bench.experiments.demo import Numbered
from headwater_bench.experiments.loop_figures import counts_over_time, errors_by_second, picture, rmse_between
from headwater_bench.experiments.turning_city import TurningCity
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.notes import notes_of
from headwater_bench.riot.pred import pred
from headwater_bench.riot.stats import stats

RATE_HZ = 250.0
LEARN_ROWS = 2000  #: to be in the table before a training
WATCH_S = 6.0  #: how long to look at the error after something has changed
PATIENCE_S = 200.0  #: after which the demonstration ends with what it has

_FAIR = {"spark.scheduler.mode": "FAIR"}  # so that training gets its share beside the streams

Tell = Callable[[str], None]


@dataclass
class _Story:
    """What happened when, by the wall clock, in nanoseconds."""

    moments: dict[str, int] = field(default_factory=dict)
    trained: list[list[Model]] = field(default_factory=list)
    training_s: list[float] = field(default_factory=list)
    ages_s: dict[str, float] = field(default_factory=dict)  #: how long each run had been going at the start

    def note(self, what: str) -> None:
        self.moments[what] = time.time_ns()


def run(output: Path, *, tell: Tell = lambda text: None, rate: float = RATE_HZ) -> dict[str, Any]:
    """Play the loop; writes tables, models, loop.csv and loop.png to the folder, and returns the figures."""
    for old in ("table", "stats", "models"):
        rmtree(output / old, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    city, story, forecasts = TurningCity(rate), _Story(), Collect()
    with broker() as url, ExitStack() as stack:
        tell("starting Spark")
        cloud = _cloud(url, city, output, stack)
        tell("starting the gateway and the sensors")
        edge = _edge(url, city, forecasts)
        for each in edge.values():
            stack.enter_context(_running(each))
        sensors = stack.enter_context(_running(engine.start(_sensors(url, city), sample_s=0.5)))
        runs = {"sensors": sensors, **edge, **cloud}
        story.note("start")
        story.ages_s = {name: run.sample().at_s for name, run in runs.items()}
        _play(url, city, output, story, runs, tell)
        story.note("end")
        tell("stopping")
    return _figures(story, {name: run.wait() for name, run in runs.items()}, forecasts, output)


@contextmanager
def _running(run: Any) -> Iterator[Any]:
    try:
        yield run
    finally:
        run.stop()
        run.wait()


def _sensors(url: str, city: TurningCity) -> Flow:
    flow = city.sensors()
    Stream(flow, "speak").write("radio", Mqtt(url, "city/raw", payload="text"))
    return flow


def _edge(url: str, city: TurningCity, forecasts: Collect) -> dict[str, Any]:
    """Start the gateway: ETL cleans what the sensors send, PRED reads what is clean and takes over models."""
    whole = etl(_hear(url, "city/raw"), notes=notes_of(CITY, city.ids), wide=True)
    # the flow as it is, but for its last step: only the text goes out, since that is what the others read
    clean = Flow.of_steps("etl", [each for each in whole.steps.values() if each.name != "publish"])
    Stream(clean, "senml").select("payload", "senml").write("publish", Mqtt(url, "city/clean", payload="text"))
    prediction = pred(_hear(url, "city/clean"), updates=announcements(url, "city/models"), forecasts=forecasts)
    return {"edge etl": engine.start(clean), "edge pred": engine.start(prediction, sample_s=0.5)}


def _cloud(url: str, city: TurningCity, output: Path, stack: ExitStack) -> dict[str, Any]:
    """Start Spark: ETL into a table that lies in folders by place, STATS into another."""
    from headwater import spark

    table = ParquetTable(output / "table", by="location")
    flows = {
        "spark etl": etl(_hear(url, "city/clean"), notes=notes_of(CITY, city.ids), wide=True, insert=table),
        "spark stats": stats(_hear(url, "city/clean"), publish=ParquetTable(output / "stats", by="kind")),
    }
    runs = {}
    for name, flow in flows.items():
        runs[name] = stack.enter_context(_running(spark.start(flow, every="3 seconds", sample_s=0.5, settings=_FAIR)))
    return runs


def _hear(url: str, topic: str) -> Source:
    return Numbered(Mqtt(url, topic, Schema.of({"message": str}), payload="text"))


def _play(url: str, city: TurningCity, output: Path, story: _Story, runs: dict[str, Any], tell: Tell) -> None:
    from headwater_bench.mllib.train import Span, Trainer

    trainer = Trainer(output / "table", ModelStore(output / "models"), broker=url, topic="city/models")
    until = time.monotonic() + PATIENCE_S

    def reached(what: Callable[[], bool]) -> bool:
        while not what():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def in_table() -> int:
        return int(runs["spark etl"].sample().records_out.get("insert", 0))

    def loaded_count() -> int:
        return int(runs["edge pred"].sample().steps["load"].records_out)

    def learn(span: Span, name: str) -> bool:
        before, began = loaded_count(), time.monotonic()
        story.note(f"{name} trains")
        story.trained.append(trainer.train(span))
        story.training_s.append(time.monotonic() - began)
        if not reached(lambda: loaded_count() >= before + 2):
            return False
        story.note(f"{name} is used")
        time.sleep(WATCH_S)
        return True

    tell(f"the gateway predicts with the published model; {LEARN_ROWS:,} rows are gathered in Spark's table")
    if not reached(lambda: in_table() >= LEARN_ROWS):
        return
    tell("Spark trains on them and announces the first model")
    if not learn(Span(), "model 1"):
        return
    _send_bad_models(url, story.trained[0])
    turn = city.turn = int(runs["sensors"].sample().records_in) + int(city.rate_hz)
    tell("the city changes: the model no longer fits; what comes now is gathered")
    reached(lambda: runs["sensors"].sample().records_in > turn)
    story.note("the city changes")
    time.sleep(WATCH_S)
    first = city.time_ms(turn) + 1000
    if reached(lambda: in_table() >= turn + LEARN_ROWS):
        tell("Spark trains on what came since, and announces the second model")
        learn(Span(start=first), "model 2")


def _send_bad_models(url: str, models: list[Model]) -> None:
    """Announce what must be refused: a model cut short, and one that is older than it should be."""
    schema = Schema.of({"model": str})
    older = models[0].to_json().replace(b'"intercept":', b'"intercept":1')
    writer = Mqtt(url, "city/models/regression", payload="text", qos=1).open(schema)
    writer.write(Batch.of({"model": [models[1].to_json()[:-20].decode(), older.decode()]}, schema))
    writer.close()


def _figures(story: _Story, reports: dict[str, Any], forecasts: Collect, output: Path) -> dict[str, Any]:
    series = errors_by_second(forecasts.batches, story.moments["start"])
    names = ("sensors", "edge pred", "spark etl")
    counts = {name: counts_over_time(reports[name], story.ages_s[name]) for name in names}
    picture(series, counts, story.moments, output)
    keys = ("records_in", "records_out", "dead_letters", "latency_ms", "seconds")
    flows = {}
    for name, report in reports.items():
        document = report.to_json()
        flows[name] = {key: document[key] for key in keys if key in document}
        flows[name]["refused"] = [letter["error"] for letter in report.examples]
    trained = [
        {"seconds": round(seconds, 1), **{model.kind: {"revision": model.revision, **model.facts} for model in models}}
        for models, seconds in zip(story.trained, story.training_s, strict=True)
    ]
    return {
        "phases": _phases(story, forecasts),
        "trained": trained,
        "flows": flows,
        "complete": "model 2 is used" in story.moments,
        "output": str(output),
    }


def _phases(story: _Story, forecasts: Collect) -> list[dict[str, Any]]:
    """Return how far forecasts were off, from one event to the next."""
    borders = [
        ("published model", "start", "model 1 is used"),
        ("model 1", "model 1 is used", "the city changes"),
        ("model 1, city changed", "the city changes", "model 2 is used"),
        ("model 2", "model 2 is used", "end"),
    ]
    phases = []
    for name, start, stop in borders:
        if start in story.moments:
            end = story.moments.get(stop, story.moments["end"])
            count, rmse = rmse_between(forecasts.batches, story.moments[start], end)
            seconds = round((end - story.moments[start]) / 1e9, 1)
            phases.append({"phase": name, "seconds": seconds, "forecasts": count, "rmse": rmse})
    return phases
