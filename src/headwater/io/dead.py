"""Dead letters in a folder: kept through any crash, to be looked at, mended and replayed; each until it is released.

The folder has two logs: `letters`, which the run appends to, and `released`, the numbers of those that are done with. So a
run and whoever looks after its dead letters work side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from headwater.clock import latest_ns
from headwater.data.batch import CREATED, Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Delivery
from headwater.io.log import Log, Reader

_LETTERS, _RELEASED = "letters", "released"


class Letter(msgspec.Struct, frozen=True):
    """A record that broke a step."""

    step: str
    error: str
    record: str  #: as JSON, or the text that could not be read
    at_ns: int  #: when it broke the step
    created_ns: int  #: when the record was created
    id: int = -1  #: its number in the store

    def to_json(self) -> dict[str, Any]:
        """Describe the letter; the record as what it is, where it is JSON."""
        try:
            record = msgspec.json.decode(self.record)
        except msgspec.DecodeError:
            record = self.record
        return {**msgspec.structs.asdict(self), "record": record}


@dataclass(frozen=True, slots=True)
class DeadLetterFolder:
    """A sink of dead letters, and what is in it."""

    folder: str | Path

    delivery: ClassVar[Delivery] = "neither"

    def open(self, schema: Schema) -> _Writer:
        """Start keeping dead letters; they are safe when `write` returns."""
        return _Writer(Path(self.folder))

    def letters(self) -> Iterator[Letter]:
        """Return the letters that are not released, oldest first; a run may be at work on the folder."""
        letters = Path(self.folder) / _LETTERS
        if not letters.is_dir():
            raise InputError(f"{str(self.folder)!r} holds no dead letters; a run keeps them there with --dead")
        released = set(_numbers(Path(self.folder)))
        reader = Reader(letters)
        try:
            while entries := reader.read():
                for entry in entries:
                    if entry.position not in released:
                        letter = msgspec.json.decode(entry.data, type=Letter)
                        yield msgspec.structs.replace(letter, id=entry.position)
        finally:
            reader.close()

    def release(self, numbers: Iterable[int]) -> None:
        """Be done with letters; this is safe when it returns."""
        log = Log(Path(self.folder) / _RELEASED)
        try:
            for number in numbers:
                log.append(str(number).encode())
        finally:
            log.close()

    def __str__(self) -> str:
        return str(self.folder)


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._log = Log(folder / _LETTERS)
        gone = set(_numbers(folder))
        if gone and gone.issuperset(range(self._log.first, self._log.end)):
            self._log.clear()  # all of them are released: their disk is given back

    def write(self, batch: Batch) -> None:
        """Keep the letters."""
        at_ns = latest_ns()
        for row, created_ns in zip(batch.rows(), batch.stamps[:, CREATED].tolist(), strict=True):
            letter = Letter(row["step"], row["error"], row["record"], at_ns, created_ns)
            self._log.append(msgspec.json.encode(letter), created_ns=created_ns)
        self._log.sync()

    def close(self) -> None:
        """Leave the folder."""
        self._log.close()


def _numbers(folder: Path) -> Iterator[int]:
    """Return the numbers of the letters that are released."""
    if not (folder / _RELEASED).is_dir():
        return
    reader = Reader(folder / _RELEASED)
    try:
        while entries := reader.read():
            yield from (int(entry.data) for entry in entries)
    finally:
        reader.close()
