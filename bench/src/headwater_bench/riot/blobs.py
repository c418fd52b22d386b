"""Files in a store: a folder, or any place that fsspec knows by its URL."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import DeliverySemantics, Refused
from headwater.io.urls import without_password


class BlobStore:
    """Puts and gets whole files by name; a name never reaches outside the store."""

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self._remote: Any = None
        if "://" in self.place:
            try:
                fsspec = import_module("fsspec")
            except ImportError as error:
                raise InputError(f"{self} needs fsspec; install it, or name a folder") from error
            self._remote, self._root = fsspec.core.url_to_fs(self.place)
        else:
            Path(place).mkdir(parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Store a file, in the place of one with the same name."""
        try:
            if self._remote is not None:
                self._remote.pipe_file(f"{self._root}/{Path(name).name}", data)
            else:
                (Path(self.place) / Path(name).name).write_bytes(data)
        except OSError as error:
            raise InputError(f"cannot put {name!r} into {self}: {error}") from error

    def get(self, name: str) -> bytes:
        """Return a file's content."""
        try:
            if self._remote is not None:
                content: bytes = self._remote.cat_file(f"{self._root}/{Path(name).name}")
                return content
            return (Path(self.place) / Path(name).name).read_bytes()
        except OSError as error:
            raise InputError(f"cannot get {name!r} from {self}: {error}") from error

    def __str__(self) -> str:
        return without_password(self.place)


class PutBlobs:
    """A sink that stores the `data` of each record under its `name`."""

    delivery: DeliverySemantics = "idempotent"  # a file that comes again takes its own place

    writers = "many"

    def __init__(self, store: BlobStore) -> None:
        self.store = store

    def open(self, schema: Schema) -> PutBlobs:
        """Start to store."""
        for column in ("name", "data"):
            schema.type_of(column, what=f"blob store {self.store}")
        return self

    def write(self, batch: Batch) -> Refused:
        """Store each record's data."""
        refusals: Refused = {}
        for row, (name, data) in enumerate(zip(batch["name"].tolist(), batch["data"].tolist(), strict=True)):
            try:
                self.store.put(name, data)
            except InputError as error:
                refusals[row] = str(error)
        return refusals

    def close(self) -> None:
        """Nothing is left open."""


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return the files as one compressed archive, the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def zip_stored(store: BlobStore, names: list[str]) -> bytes:
    """Return files of a store, wherever it is, as one archive."""
    return zipped({name: store.get(name) for name in names})
