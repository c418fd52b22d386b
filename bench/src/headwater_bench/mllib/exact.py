"""The engine's own trainers on Spark: the same models as TRAIN learns there from the same rows, in whichever order.

The regression is fitted from sums that tasks make of their rows and the driver adds up. A tree of C4.5's kind looks at all
values of a column, over and over, so that its rows are gathered in the driver: five columns of doubles, 40 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import ModelError
from headwater.models.model import LinearModel, TreeModel
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.labels import CLASSES, quartile_classes
from headwater_bench.riot.train_regression import Moments, Numbers, regression_of
from headwater_bench.riot.train_tree import train_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GATHERED = 20_000_000  #: rows at most that a tree is grown from


def regression(rows: DataFrame, dataset: Dataset) -> LinearModel:
    """Fit the last feature by the others."""
    summed = rows.select(*dataset.features).mapInArrow(_summed, "at int, told array<double>").toArrow()
    # in the order of partitions, so that the same table gives the same bits
    moments = summed.sort_by("at").column("told").to_pylist()
    return regression_of(
        reduce(add, (Moments.from_floats(each, len(dataset.features)) for each in moments)), list(dataset.features)
    )


def tree(rows: DataFrame, dataset: Dataset, count: int) -> TreeModel:
    """Grow a tree that tells the class of a row."""
    if count > GATHERED:
        raise ModelError(
            f"the exact tree is grown in the driver, from {GATHERED:,} rows at most, and there are {count:,}: learn from a "
            "span of them, or with MLlib (--trainer mllib), whose tree is another"
        )
    features = _matrix(rows.select(*dataset.features).toArrow())
    return train_tree(features, quartile_classes(features[-1]), list(dataset.features), list(CLASSES))


def _matrix(table: Any) -> Numbers:
    return np.array([column.to_numpy() for column in table.columns], np.float64)


def _summed(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    moments = [Moments.of(_matrix(pa.Table.from_batches([batch]))) for batch in batches if batch.num_rows]
    if moments:
        floats = pa.array([reduce(add, moments).to_floats()], pa.list_(pa.float64()))
        yield pa.record_batch([pa.array([context.partitionId()], pa.int32()), floats], names=["at", "told"])
