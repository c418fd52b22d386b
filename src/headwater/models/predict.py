"""Prediction with models that are swapped while the flow runs: a tree tells a class, a regression a number."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Text
from headwater.data.schema import Schema
from headwater.errors import ModelError
from headwater.models.model import LinearModel, Model, TreeModel, from_json, load
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import Select, dead_letters
from headwater.operators.snapshot import pack_state, unpack_state

log = logging.getLogger(__name__)
T = TypeVar("T")

#: What a step that reads models from a store puts out: the model's portable form.
MODELS = Schema.of({"model": str})


class ModelStep(Operator):
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
        models = batch["model"].bytes_list()
        _, _, errors, bad = apply_each(lambda i: self._offer(from_json(models[i], "an announced model")), len(models))
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
        return pack_state("model", {"model": self.model.to_json().decode()})

    def restore(self, data: bytes) -> None:
        """Take over a saved model."""
        self.model = self._fitting(from_json(unpack_state("model", data)["model"].encode(), "a saved model"))


class Classify(ModelStep):
    """Tells each row's class by a decision tree: column `into`."""

    kind = TreeModel

    def __init__(
        self, model: TreeModel, columns: Sequence[str], step: str = "classify", *, into: str = "class"
    ) -> None:
        super().__init__(model, columns, step)
        self.into = into
        self._labelled, self._names = model, Text.of(model.classes)

    def predict(self, batch: Batch) -> Batch:
        """Return the rows with the name of their class."""
        return batch.with_columns({self.into: self.classes(batch)[1]})

    def classes(self, batch: Batch) -> tuple[Array, Text]:
        """Return the number and the name of each row's class."""
        assert isinstance(self.model, TreeModel)
        if self._labelled is not self.model:
            self._labelled, self._names = self.model, Text.of(self.model.classes)
        numbers = self.model.predict(self.features(batch))
        return numbers, self._names.take(numbers)


class Regress(ModelStep):
    """Predicts one column of each row from others: column `into`."""

    kind = LinearModel

    def __init__(
        self,
        model: LinearModel,
        columns: Sequence[str],
        target: str,
        step: str = "regress",
        *,
        into: str = "predicted",
    ) -> None:
        self.target, self.into = target, into
        super().__init__(model, columns, step)

    def _fitting(self, model: Model) -> Model:
        assert isinstance(model, LinearModel)
        if model.target != self.target:
            raise ModelError(f"step {self._step!r} predicts {self.target!r}; the model is for {model.target!r}")
        return super()._fitting(model)

    def predict(self, batch: Batch) -> Batch:
        """Return the rows with what is predicted for them."""
        return batch.with_columns({self.into: self.numbers(batch)})

    def numbers(self, batch: Batch) -> Array:
        """Return what is predicted for each row."""
        return self.model.predict(self.features(batch)).astype(np.float32)


class LoadModel(Operator):
    """Reads announced models: their portable form itself, or the names of files in a folder.

    What cannot be read is a dead letter.
    """

    def __init__(self, folder: Path | None, step: str = "load") -> None:
        self._folder, self._step = folder, step

    def process(self, batch: Batch, port: int) -> Output:
        """Return the models' portable forms."""
        announcements = batch["model"].bytes_list()
        models, rows, errors, bad = apply_each(lambda i: self._read(announcements[i]).to_json(), len(announcements))
        outputs: list[tuple[int, Batch]] = []
        if rows:
            outputs.append((0, Batch({"model": Text.of_bytes(models)}, len(rows), batch.stamps[rows])))
        if bad:
            outputs.append((DEAD, dead_letters(self._step, errors, batch.take(np.array(bad)))))
        return outputs

    def _read(self, announcement: bytes) -> Model:
        if self._folder is None:
            return from_json(announcement, "an announced model")
        # only the last part: a name from outside must not reach beyond the folder
        return load(self._folder / Path(announcement.decode()).name)


def apply_each(work: Callable[[int], T], count: int) -> tuple[list[T], list[int], list[str], list[int]]:
    """Work on records one by one; return results and the rows they are of, errors and the rows they are of."""
    results: list[T] = []
    rows: list[int] = []
    errors: list[str] = []
    bad: list[int] = []
    for i in range(count):
        try:
            results.append(work(i))
            rows.append(i)
        except ModelError as error:
            errors.append(str(error))
            bad.append(i)
    return results, rows, errors, bad
