"""The benchmark's forms of prediction, and the error of a prediction measured by the latest average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwater import models
from headwater.data.batch import Batch
from headwater.data.column import Column, Text
from headwater.models import LinearModel, TreeModel
from headwater.operators import Operator, Output
from headwater.operators.operator import Select
from headwater.operators.snapshot import pack_state, unpack_state

_DTC, _MLR, _NO_LABEL = Text.of(["DTC"]), Text.of(["MLR"]), Text.of([""])


class Classify(models.Classify):
    """Tells each row's class by a decision tree, by number and by name."""

    def __init__(self, model: TreeModel, columns: Sequence[str], id_columns: Sequence[str], step: str = "dtc") -> None:
        super().__init__(model, columns, step)
        self._id_columns = tuple(id_columns)

    def predict(self, batch: Batch) -> Batch:
        """Return the number and the name of each row's class."""
        numbers, labels = self.classes(batch)
        kind = _DTC.take(np.zeros(batch.length, np.int64))
        return _of(batch, self._id_columns, {"kind": kind, "result": numbers.astype(np.float32), "label": labels})


class Regress(models.Regress):
    """Predicts one column of each row from others, beside what was measured."""

    def __init__(
        self, model: LinearModel, columns: Sequence[str], target: str, id_columns: Sequence[str], step: str = "mlr"
    ) -> None:
        self._id_columns = tuple(id_columns)
        super().__init__(model, columns, target, step)

    def predict(self, batch: Batch) -> Batch:
        """Return what was measured and what was predicted."""
        return _of(batch, self._id_columns, {"measured": batch[self.target], "predicted": self.numbers(batch)})


class EstimateError(Operator):
    """Measures the error of each prediction (input 0) in units of the latest average (input 1) of any sensor.

    Before the first average that is infinite, as in the original. Averages go to all instances, so that any of them may
    take any prediction.
    """

    stateless = False
    replicable = True

    def __init__(self, id_columns: Sequence[str]) -> None:
        self._id_columns = tuple(id_columns)
        self._average = np.float32(0)

    def process(self, batch: Batch, port: int) -> Output:
        """Return errors, or remember an average."""
        if port == 1:
            self._average = batch["value"][-1]
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = (batch["measured"] - batch["predicted"]) / self._average
        one = np.zeros(batch.length, np.int64)
        columns: dict[str, Column] = {
            "kind": _MLR.take(one),
            "result": errors,
            "label": _NO_LABEL.take(one),
        }
        return _of(batch, self._id_columns, columns)

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the latest average."""
        return pack_state("error", {"average": float(self._average)})

    def restore(self, data: bytes) -> None:
        """Take over a saved average."""
        self._average = np.float32(unpack_state("error", data)["average"])


def _of(batch: Batch, id_columns: Sequence[str], more: dict[str, Column]) -> Batch:
    return batch.of_columns({**{name: batch[name] for name in id_columns}, **more})
