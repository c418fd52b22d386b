"""TRAIN as `headwater run riot:train --on spark` runs it: a table in, two models and a report out."""

from __future__ import annotations

import time
from pathlib import Path

from headwater.data.batch import Batch
from headwater.histogram import Histogram
from headwater.io.csv import Csv
from headwater.metrics import Report, Sample, StepMetrics
from headwater.models.model import Model
from headwater.models.store import ModelStore
from headwater.spark.session import session
from headwater_bench.mllib.table import check_table, read_table
from headwater_bench.mllib.train import EXACT, Trainer
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.learn import TRAINED


def run(
    table: Path, folder: Path, *, master: str | None = None, dataset: Dataset = CITY, trainer: str = EXACT
) -> Report:
    """Train both models on all rows of a table and keep them in a folder; the report has the engine's steps."""
    check_table(table)
    session(master)
    began = time.perf_counter()
    frame = read_table(table, dataset)
    training = Trainer(frame, ModelStore(folder), dataset, trainer=trainer)
    models = training.train()
    files = [training.store.path(training.names[model.kind], model.revision).name for model in models]
    _announce(files, folder)
    seconds = time.perf_counter() - began
    return Report(
        flow="train",
        runner="spark",
        seconds=seconds,
        last=_sample(models, frame.count(), seconds),
        extra={"trainer": trainer, "models": [_description(*each) for each in zip(files, models, strict=True)]},
    )


def _announce(files: list[str], folder: Path) -> None:
    """Write down which models there are now, as the engine's TRAIN does."""
    writer = Csv(folder / "publish.csv").open(TRAINED)
    kinds = [file.split("-")[1] for file in files]
    writer.write(Batch.of({"msg": [1] * len(files), "kind": kinds, "model": files}, TRAINED))
    writer.close()


def _sample(models: list[Model], count: int, seconds: float) -> Sample:
    """Return what was done in the words of a flow: rows that lack a value are read, and not handed on."""
    rows = int(models[0].facts["rows"])
    fitting = dict(zip(("mlt", "dtt"), (model.facts["seconds"] for model in models), strict=True))
    steps = {"read": _step("read", count, rows, seconds - sum(fitting.values()), seconds)}
    steps |= {name: _step(name, rows, 1, took, seconds) for name, took in fitting.items()}
    steps["publish"] = _step("publish", len(models), len(models), 0.0, seconds)
    return Sample(seconds, steps, Histogram(), Histogram(), count, {"publish": len(models)})


def _step(name: str, came: int, went: int, busy_s: float, seconds: float) -> StepMetrics:
    busy_ns, span_ns = round(busy_s * 1e9), round(seconds * 1e9)
    return StepMetrics(
        name,
        records_in=came,
        records_out=went,
        activations=1,
        busy_ns=busy_ns,
        t_c_ns=busy_ns * came,
        t_empty_ns=span_ns - busy_ns,
        span_ns=span_ns,
    )


def _description(file: str, model: Model) -> dict[str, object]:
    return {"file": file, "kind": model.kind, "revision": model.revision, **model.facts}
