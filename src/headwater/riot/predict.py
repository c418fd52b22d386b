"""Prediction: a tree tells a class, a regression a number, and the latest average measures its error."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text
from headwater.data.schema import Schema
from headwater.errors import ModelError
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import Select, dead_letters
from headwater.operators.snapshot import packed, unpacked
from headwater.riot.models import LinearModel, Model, TreeModel, from_json, load

log = logging.getLogger(__name__)

#: What a step that reads models from a store puts out: the model's portable form.
MODELS = Schema.of({"model": str})


_DTC, _MLR, _NO_LABEL = Text.of(["DTC"]), Text.of(["MLR"]), Text.of([""])


class _WithModel(Operator):
    """Applies a model to rows (input 0) and takes a new one whenever it comes (input 1).

    A model that is older than the one in use, or does not fit, is a dead letter, and the old one stays; a model of
    another kind is passed over, and so is the one in use when it is announced again.
    """

    stateless = False
    replicable = True
    kind: type[Model]

    def __init__(self, model: Model, columns: Sequence[str], step: str) -> None:
        self.columns, self._step = tuple(columns), step
        self.model = self._fitting(model)

    def process(self, batch: Batch, port: int) -> Output:
        """Return predictions, or take over a model."""
        if port == 0:
            return self.predict(batch)
        errors: list[str] = []
        bad: list[int] = []
        for i, raw in enumerate(batch["model"].bytes_list()):
            try:
                self._offer(from_json(raw, "an announced model"))
            except ModelError as error:
                errors.append(str(error))
                bad.append(i)
        return [(DEAD, dead_letters(self._step, errors, batch.take(np.array(bad))))] if bad else None

    def _offer(self, model: Model) -> None:
        if not isinstance(model, self.kind) or model.to_json() == self.model.to_json():
            return
        fitting = self._fitting(model)
        if model.revision <= self.model.revision and self.model.revision:
            raise ModelError(
                f"step {self._step!r} uses revision {self.model.revision}; "
                f"an announced model is revision {model.revision}, which is not newer"
            )
        self.model = fitting
        log.info("step %r uses revision %d from now on", self._step, model.revision)

    @abstractmethod
    def predict(self, batch: Batch) -> Batch:
        """Return predictions for rows."""

    def features(self, batch: Batch) -> Array:
        """Return the rows' features, one row of the matrix for each column."""
        return np.array([batch[name] for name in self.columns], np.float64)

    def _fitting(self, model: Model) -> Model:
        if model.columns != self.columns:
            raise ModelError(f"step {self._step!r} reads {list(self.columns)}; the model is for {list(model.columns)}")
        return model

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the model in use."""
        return packed("model", {"model": self.model.to_json().decode()})

    def restore(self, data: bytes) -> None:
        """Take over a saved model."""
        self.model = self._fitting(from_json(unpacked("model", data)["model"].encode(), "a saved model"))


class Classify(_WithModel):
    """Tells each row's class by a decision tree."""

    kind = TreeModel

    def __init__(self, model: TreeModel, columns: Sequence[str], kept: Sequence[str], step: str = "dtc") -> None:
        super().__init__(model, columns, step)
        self._kept = tuple(kept)
        self._labelled, self._names = model, Text.of(model.classes)

    def _labels(self, model: TreeModel) -> Text:
        if self._labelled is not model:
            self._labelled, self._names = model, Text.of(model.classes)
        return self._names

    def predict(self, batch: Batch) -> Batch:
        """Return the number and the name of each row's class."""
        assert isinstance(self.model, TreeModel)
        found = self.model.predict(self.features(batch))
        labels = self._labels(self.model).take(found)
        kind = _DTC.take(np.zeros(batch.length, np.int64))
        return _of(batch, self._kept, {"kind": kind, "result": found.astype(np.float32), "label": labels})


class Regress(_WithModel):
    """Predicts one column of each row from others."""

    kind = LinearModel

    def __init__(
        self, model: LinearModel, columns: Sequence[str], target: str, kept: Sequence[str], step: str = "mlr"
    ) -> None:
        self._target, self._kept = target, tuple(kept)
        super().__init__(model, columns, step)

    def _fitting(self, model: Model) -> Model:
        assert isinstance(model, LinearModel)
        if model.target != self._target:
            raise ModelError(f"step {self._step!r} predicts {self._target!r}; the model is for {model.target!r}")
        return super()._fitting(model)

    def predict(self, batch: Batch) -> Batch:
        """Return what was measured and what was predicted."""
        found = self.model.predict(self.features(batch)).astype(np.float32)
        return _of(batch, self._kept, {"measured": batch[self._target], "predicted": found})


class EstimateError(Operator):
    """Measures the error of each prediction (input 0) in units of the latest average (input 1) of any sensor.

    Before the first average that is infinite, as in the original.
    """

    stateless = False

    def __init__(self, kept: Sequence[str]) -> None:
        self._kept = tuple(kept)
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
        return _of(batch, self._kept, columns)

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the latest average."""
        return packed("error", {"average": float(self._average)})

    def restore(self, data: bytes) -> None:
        """Take over a saved average."""
        self._average = np.float32(unpacked("error", data)["average"])


def _of(batch: Batch, kept: Sequence[str], more: dict[str, Column]) -> Batch:
    return batch.of_columns({**{name: batch[name] for name in kept}, **more})


class LoadModel(Operator):
    """Reads announced models: their portable form itself, or the names of files in a folder.

    What cannot be read is a dead letter.
    """

    def __init__(self, folder: Path | None, step: str = "load") -> None:
        self._folder, self._step = folder, step

    def process(self, batch: Batch, port: int) -> Output:
        """Return the models' portable forms."""
        models, rows, errors, bad = [], [], [], []
        for i, announced in enumerate(batch["model"].bytes_list()):
            try:
                models.append(self._read(announced).to_json())
                rows.append(i)
            except ModelError as error:
                errors.append(str(error))
                bad.append(i)
        made: list[tuple[int, Batch]] = []
        if rows:
            made.append((0, Batch({"model": Text.of_bytes(models)}, len(rows), batch.stamps[rows])))
        if bad:
            made.append((DEAD, dead_letters(self._step, errors, batch.take(np.array(bad)))))
        return made

    def _read(self, announced: bytes) -> Model:
        if self._folder is None:
            return from_json(announced, "an announced model")
        # only the last part: a name from outside must not reach beyond the folder
        return load(self._folder / Path(announced.decode()).name)
