"""Where trained models are kept: a folder with every revision of every model, one file each."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from headwater.errors import ModelError
from headwater.models.model import LinearModel, Model, TreeModel, load


class ModelStore:
    """A folder of models; each is kept under its name and its revision, and none is ever replaced.

    >>> import tempfile
    >>> store = ModelStore(tempfile.mkdtemp())
    >>> line = LinearModel(("temperature",), "dust", (2.0,), 1.0)
    >>> [store.add("CITY-MLR", line).revision for _ in range(2)]
    [1, 2]
    >>> [path.name for path in store.files("CITY-MLR")]
    ['CITY-MLR-000001.model', 'CITY-MLR-000002.model']
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"cannot keep models in {self.folder}: {error.strerror}") from error

    def add(self, name: str, model: Model) -> Model:
        """Keep a model as the next revision of its name; returns it with that revision."""
        while True:
            numbered = _with_revision(model, self.revision(name) + 1)
            if _created(self.path(name, numbered.revision), numbered.to_json()):
                return numbered  # else another trainer was faster, and the next number is free

    def latest(self, name: str) -> Model | None:
        """Return the newest revision, or None before the first."""
        files = self.files(name)
        return load(files[-1]) if files else None

    def revision(self, name: str) -> int:
        """Return the number of the newest revision, 0 before the first."""
        files = self.files(name)
        return _number(files[-1]) if files else 0

    def files(self, name: str) -> list[Path]:
        """Return the files of a model, oldest first."""
        paths = [path for path in self.folder.glob(f"{name}-*.model") if _is_of(path, name)]
        return sorted(paths, key=_number)

    def path(self, name: str, revision: int) -> Path:
        """Return where a revision is kept."""
        return self.folder / f"{name}-{revision:06d}.model"


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _is_of(path: Path, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}-\d{{6,}}", path.stem) is not None


def _with_revision(model: Model, revision: int) -> Model:
    if isinstance(model, TreeModel):
        return TreeModel(model.columns, model.classes, model.nodes, revision=revision, facts=model.facts)
    parts = model.columns, model.target, model.coefficients, model.intercept
    return LinearModel(*parts, revision=revision, facts=model.facts)


def _created(path: Path, raw: bytes) -> bool:
    """Write a file whole, unless there is one of that name."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draft-") as draft:
            draft.write(raw)
            draft.flush()
            os.link(draft.name, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise ModelError(f"cannot write model file {path}: {error.strerror}") from error
    return True
