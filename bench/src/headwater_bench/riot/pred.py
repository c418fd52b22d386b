"""PRED: a class and a forecast for every message, with models that can be replaced while the flow runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from headwater.data.schema import Schema
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.flow.steps import Apply, Input
from headwater.flow.stream import Stream
from headwater.io import Discard
from headwater.models import MODELS, LinearModel, LoadModel, TreeModel
from headwater.steps import BlockAverage
from headwater_bench.riot import published_models
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.instances import counted
from headwater_bench.riot.parse import ParseRows, row_schema
from headwater_bench.riot.predict import Classify, EstimateError, Regress
from headwater_bench.riot.stats import write_all

#: How many instances of each step EdgeWise ran.
INSTANCES = {"parse": 2, "dtc": 1, "mlr": 1, "average": 1, "error": 1, "publish": 3, "load": 1}


def pred(
    source: Source,
    *,
    dataset: Dataset = CITY,
    tree: TreeModel | None = None,
    regression: LinearModel | None = None,
    updates: Source | None = None,
    models: Path | None = None,
    window: int = 5,
    publish: Sink | None = None,
    forecasts: Sink | None = None,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: two results for every message, a class and the error of a regression.

    `updates` brings new models in a text column `model`: each in its portable form, or, with a folder `models`,
    the name of a file there. A sink for `forecasts` also takes out what the regression predicts.
    """
    count = counted(INSTANCES, instances)
    features, target = dataset.features, dataset.features[-1]
    first_tree, first_line = tree or published_models.tree(dataset), regression or published_models.regression(dataset)
    flow = Flow("pred")
    rows = flow.read("messages", source).apply(
        "parse", partial(ParseRows, dataset), out=row_schema(dataset), parallel=count["parse"]
    )
    loaded = None
    if updates is not None:
        announced = flow.read("updates", updates)
        loaded = announced.apply("load", partial(LoadModel, models), out=MODELS, parallel=count["load"])
    id_columns = ["msg", dataset.id]
    keys: dict[str, object] = {"msg": int, dataset.id: str}
    results = {**keys, "kind": str, "result": "float32", "label": str}
    classes = _with_models(
        flow, "dtc", rows, loaded, Apply(partial(Classify, first_tree, features, id_columns)), results, count
    )
    line = Apply(partial(Regress, first_line, features[:-1], target, id_columns))
    measures = {**keys, "measured": "float32", "predicted": "float32"}
    predicted = _with_models(flow, "mlr", rows, loaded, line, measures, count)
    averages = rows.key_by(dataset.id).scan(
        "average",
        BlockAverage(window, target, into="value"),
        out={**keys, "value": "float32"},
        parallel=count["average"],
    )
    inputs = (Input("mlr", "out", predicted.schema), Input("average", "out", averages.schema, grouping="all"))
    flow.add(
        "error",
        Apply(partial(EstimateError, id_columns)),
        inputs=inputs,
        outputs={"out": classes.schema},
        parallel=count["error"],
    )
    write_all(flow, "publish", [classes, Stream(flow, "error")], publish or Discard(), count["publish"])
    if forecasts is not None:
        predicted.write("forecasts", forecasts)
    return flow


def _with_models(
    flow: Flow,
    name: str,
    rows: Stream,
    models: Stream | None,
    kind: Apply,
    out: Mapping[str, object],
    count: Mapping[str, int],
) -> Stream:
    inputs = [Input(rows.step, rows.port, rows.schema)]
    if models is not None:
        inputs.append(Input(models.step, models.port, models.schema, grouping="all"))
    flow.add(name, kind, inputs=tuple(inputs), outputs={"out": Schema.of(out)}, parallel=count[name])
    return Stream(flow, name)
