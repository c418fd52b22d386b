"""TRAIN on Spark: a regression and a decision tree are learned from a range of a table that ETL wrote.

By the engine's own trainers (`exact`), or by MLlib, whose models are others.

What comes out are models in the portable form that PRED reads on every runner, kept as revisions in a folder and
announced on MQTT.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.ml.classification import DecisionTreeClassifier
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import functions as F

from headwater.data.column import Array
from headwater.data.schema import Schema
from headwater.errors import InputError, ModelError, listed, suggestion
from headwater.flow.endpoints import Source
from headwater.flow.expr import Expr
from headwater.models.announce import announce
from headwater.models.model import Leaf, LinearModel, Model, TreeModel
from headwater.models.store import ModelStore
from headwater.spark.columns import NotNativeError, native, schema_of
from headwater.spark.session import session
from headwater_bench.mllib import exact
from headwater_bench.mllib.models import nodes_of, prediction
from headwater_bench.mllib.table import read_table
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.labels import CLASSES, class_borders

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

#: What asks for training: from when to when, in the unit of the table's time column; the end is not part of it.
TRIGGERS = Schema.of({"start": int, "end": int})

EXACT, MLLIB = "exact", "mllib"
TRAINERS = (EXACT, MLLIB)

_DEPTH = 8
_ROWS_OF_TASK = 250_000
_BINS = 512  # borders that a tree tries for each feature; where it has fewer values, all of them


@dataclass(frozen=True)
class Span:
    """The rows of a table from `start` up to, but not including, `end`; None leaves a side open."""

    start: int | None = None
    end: int | None = None

    def holds(self, column: Column) -> Column:
        """Return the condition that a row lies in the span."""
        after = F.lit(True) if self.start is None else column >= self.start
        return after if self.end is None else after & (column < self.end)

    def __str__(self) -> str:
        return f"[{'…' if self.start is None else self.start}, {'…' if self.end is None else self.end})"


@dataclass(frozen=True)
class Trainer:
    """Trains the two models of PRED from a table, keeps them, and announces them.

    `table` is a folder of Parquet files, as ETL writes it, a CSV file of such rows, or a DataFrame; `by` is its time column;
    `where` leaves out rows for which it does not hold. `trainer` is `exact`, the engine's own, or `mllib`. Models are kept
    in `store` and, with a `broker`, announced under `topic`.
    """

    table: str | Path | DataFrame
    store: ModelStore
    dataset: Dataset = CITY
    by: str = "timestamp"
    where: Expr | None = None
    broker: str | None = None
    topic: str = "models"
    trainer: str = EXACT

    def __post_init__(self) -> None:
        if self.trainer not in TRAINERS:
            raise ModelError(
                f"there is no trainer {self.trainer!r}; trainers are {listed(TRAINERS)}{suggestion(self.trainer, TRAINERS)}"
            )

    @property
    def names(self) -> dict[str, str]:
        """Under which name each kind of model is kept."""
        return {"regression": f"{self.dataset.name}-MLR", "tree": f"{self.dataset.name}-DTC"}

    def train(self, learn: Span = Span(), test: Span | None = None) -> list[Model]:  # noqa: B008  # it is frozen
        """Learn from a span of rows; measure on another, or on the same; keep and announce what came out.

        The models' facts say how many rows there were, and how far the new and the previous revision are off on
        the rows of `test`.
        """
        with _in_pool("train"):
            rows = self._rows(learn).cache()
            tested = rows if test is None else self._rows(test).cache()
            try:
                models = self._learned(rows, tested, learn)
            finally:
                rows.unpersist()
                tested.unpersist()
        files = [self.store.add(self.names[model.kind], model) for model in models]
        if self.broker is not None:
            announce(files, self.broker, self.topic)
        return files

    def follow(self, triggers: Source) -> Iterator[list[Model]]:
        """Train whenever a trigger comes, until its source ends; one that cannot be followed is logged."""
        reader = triggers.open(lambda text, reason: log.warning("cannot read a training trigger: %s: %s", reason, text))
        try:
            while (batch := reader.read(1, 0.5)) is not None:
                for row in batch.rows():
                    try:
                        yield self.train(Span(row["start"], row["end"]))
                    except (ModelError, InputError) as error:
                        log.warning("cannot train from %s to %s: %s", row["start"], row["end"], error)
        finally:
            reader.close()

    def _learned(self, rows: DataFrame, tested: DataFrame, span: Span) -> list[Model]:
        target = self.dataset.features[-1]
        values, counts = _counted(rows, target)
        if not len(values):
            raise ModelError(f"there are no rows to learn from in {self.by} {span}")
        gathered = _gathered(rows, int(counts.sum()))
        borders = class_borders(values, counts)
        label = _label(target, borders)
        least, most = np.searchsorted(borders, values[[0, -1]], side="right").tolist()
        count = int(counts.sum())
        if self.trainer == EXACT:
            fits: list[Callable[[], Model]] = [
                lambda: exact.regression(gathered, self.dataset),
                lambda: exact.tree(gathered, self.dataset, count),
            ]
        else:
            fits = [
                lambda: _regression(gathered, self.dataset),
                lambda: _tree(gathered, self.dataset, label, least, most),
            ]
        models = [_timed(fit) for fit in fits]
        self._measure(models, tested, label, count)
        return models

    def _rows(self, span: Span) -> DataFrame:
        """Return the features of the span's rows as doubles; a row that lacks one is left out."""
        table = read_table(Path(self.table), self.dataset) if isinstance(self.table, str | Path) else self.table
        missing = {self.by, *self.dataset.features} - set(table.columns)
        if missing:
            raise ModelError(
                f"training on {self.dataset.name} needs columns {listed(missing)}; "
                f"the table has {listed(table.columns)}"
            )
        features = [F.col(name).cast("double").alias(name) for name in self.dataset.features]
        rows = table.where(span.holds(F.col(self.by)))
        if self.where is not None:
            rows = rows.where(_condition(self.where, table))
        return rows.select(*features).na.drop()

    def _measure(self, models: list[Model], tested: DataFrame, label: Column, rows: int) -> None:
        """Write into the models' facts how far they, and the revisions before them, are off."""
        by_prefix: dict[str, Model] = {}
        errors: dict[str, Column] = {}
        for number, model in enumerate(models):
            by_prefix[f"{number} "] = model
            before = self.store.latest(self.names[model.kind])
            if before is not None and before.columns == model.columns:
                by_prefix[f"{number} before_"] = before
        for prefix, model in by_prefix.items():
            errors |= {f"{prefix}{name}": value for name, value in _errors(model, label).items()}
        row = tested.agg(F.count("*").alias("tested"), *(value.alias(name) for name, value in errors.items())).first()
        assert row is not None
        if not row["tested"]:
            raise ModelError("there are no rows to measure the new models on")
        for number, model in enumerate(models):
            mine = [name for name in errors if name.startswith(f"{number} ")]
            facts = {name.partition(" ")[2]: float(row[name]) for name in mine}
            model.facts.update({"rows": float(rows), "tested": float(row["tested"]), **facts})


def _condition(where: Expr, table: DataFrame) -> Column:
    schema = schema_of(table)
    try:
        if where.type_in(schema) != "bool":
            raise ModelError(f"`where` is true or false; {where} is {where.type_in(schema)}")
        return native(where, schema)
    except NotNativeError as reason:
        raise ModelError(f"`where` runs inside Spark, which cannot tell it as the engine would: {reason}") from None


@contextmanager
def _in_pool(name: str) -> Iterator[None]:
    """Let the jobs of this thread have a pool of their own: where Spark schedules fairly, a share beside streams."""
    context = session().sparkContext
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)


def _timed(fit: Callable[[], Model]) -> Model:
    """Fit a model, and write into its facts how long that took."""
    began = time.perf_counter()
    model = fit()
    model.facts["seconds"] = time.perf_counter() - began
    return model


def _gathered(rows: DataFrame, count: int) -> DataFrame:
    """Let few tasks read rows that lie in many small files: a tree needs a job for each of its levels."""
    spark = session()
    return rows.coalesce(max(spark.sparkContext.defaultParallelism, count // _ROWS_OF_TASK))


def _regression(rows: DataFrame, dataset: Dataset) -> LinearModel:
    """Fit the last feature by the others with ordinary least squares."""
    *columns, target = dataset.features
    # Centred: sums of squares of numbers far from zero would lose the digits that matter.
    figures = rows.agg(
        *(F.avg(name).alias(f"mean {name}") for name in dataset.features),
        *(F.min(name).alias(f"min {name}") for name in columns),
        *(F.max(name).alias(f"max {name}") for name in columns),
    ).first()
    assert figures is not None
    varying = [name for name in columns if figures[f"min {name}"] < figures[f"max {name}"]]
    mean = {name: figures[f"mean {name}"] for name in dataset.features}
    weights = dict.fromkeys(columns, 0.0)
    offset = 0.0
    if varying:
        centred = rows.select(*((F.col(name) - mean[name]).alias(name) for name in (*varying, target)))
        vectors = VectorAssembler(inputCols=varying, outputCol="features").transform(centred)
        trainer = LinearRegression(labelCol=target, solver="normal", regParam=0.0, maxIter=1000, tol=1e-12)
        fitted = trainer.fit(vectors)
        weights.update(zip(varying, fitted.coefficients.tolist(), strict=True))
        offset = fitted.intercept
    intercept = mean[target] + offset - sum(weights[name] * mean[name] for name in columns)
    return LinearModel(tuple(columns), target, tuple(weights.values()), intercept)


def _tree(rows: DataFrame, dataset: Dataset, label: Column, least: int, most: int) -> TreeModel:
    """Grow a tree that tells the class of a row; `least` and `most` are the outermost classes of the rows."""
    if least == most:
        return TreeModel(dataset.features, CLASSES, (Leaf(least),))
    labelled = rows.withColumn("label", label)
    vectors = VectorAssembler(inputCols=list(dataset.features), outputCol="features").transform(labelled)
    trainer = DecisionTreeClassifier(maxDepth=_DEPTH, maxBins=_BINS, impurity="entropy", seed=1)
    return TreeModel(dataset.features, CLASSES, nodes_of(trainer.fit(vectors)))


def _counted(rows: DataFrame, name: str) -> tuple[Array, Array]:
    """Return the values of a column in order, and how often each comes."""
    counted = rows.groupBy(name).count().orderBy(name).toArrow()
    return np.asarray(counted.column(0)), np.asarray(counted.column(1))


def _label(target: str, borders: Array) -> Column:
    """Return the number of a row's class."""
    good, very_good, excellent = (F.when(F.col(target) >= float(b), 1.0).otherwise(0.0) for b in borders)
    return good + very_good + excellent


def _errors(model: Model, label: Column) -> dict[str, Column]:
    guess = prediction(model)
    if isinstance(model, TreeModel):
        return {"accuracy": F.avg(F.when(guess == label, 1.0).otherwise(0.0))}
    error = F.col(model.target) - guess
    return {"rmse": F.sqrt(F.avg(error * error)), "mean_error": F.avg(error)}
