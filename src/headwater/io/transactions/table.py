"""Tables of Parquet or JSON files: files are written out of sight, on any machine, and those of a part appear together.

What the table's folder `_headwater` says of a part that counts is its commit: files named there get their places, now
or when the next run begins; files that are not named there never do. Other programs see whole files only, and never one
that a later attempt will write again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Literal
from uuid import uuid4

import msgspec

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.data.text_format import TextFormat
from headwater.flow.endpoints import CutTransaction, Ledger, Refused, StagedWriter
from headwater.io.files import explained, sync
from headwater.io.json.texts import JsonTexts
from headwater.io.sifting import sift
from headwater.io.table import writable, write_parts
from headwater.io.transactions.journal import Journal

log = logging.getLogger(__name__)

_OURS = "_headwater"  # Spark and Arrow pass over names that begin so
_LINES = TextFormat([b"", b"\n"], escape=False)
TableForm = Literal["parquet", "json"]
ENDINGS: dict[TableForm, str] = {"parquet": "parquet", "json": "jsonl"}  #: of files, by their form


@dataclass(frozen=True, slots=True)
class TableStaging:
    """Writes records out of sight; small enough to be sent to other processes."""

    place: str  #: the table's folder, as every machine sees it
    run: str  #: the name of all runs that share a checkpoint
    schema: Schema
    by: tuple[str, ...]
    form: TableForm = "parquet"

    @property
    def folder(self) -> Path:
        """Where files wait."""
        return Path(self.place) / _OURS / self.run

    def divide(self, batch: Batch) -> tuple[Batch, Refused]:
        """Return the records that the table can hold, and why it cannot hold the others."""
        if self.form == "json":
            _, records, refusals = sift(batch, JsonTexts(self.schema).of)
            return records, refusals
        return writable(batch, self.schema, self.by, Path(self.place))

    def write(self, batch: Batch) -> tuple[bytes, Batch, Refused]:
        """Write the records that the table can hold; return in which files, for who lets them appear, and the others."""
        if self.form == "json":
            texts, records, refusals = sift(batch, JsonTexts(self.schema).of)
            return self._in_files(records, texts) if len(records) else b"", records, refusals
        records, refusals = self.divide(batch)
        return self._in_files(records) if len(records) else b"", records, refusals

    def write_parted(self, batches: Sequence[Batch]) -> bytes:
        """Write records that the table can hold; return in which files."""
        batch = concat_batches(batches)
        return self._in_files(batch, JsonTexts(self.schema).of(batch) if self.form == "json" else None)

    def _in_files(self, batch: Batch, texts: Text | None = None) -> bytes:
        name, file = uuid4().hex, f"part.{ENDINGS[self.form]}"
        folders = [""]
        if texts is not None:
            self._write_lines(texts, self.folder / name / file)
        else:
            folders = [at for at, _ in write_parts(batch, self.schema, self.by, self.folder / name, file)]
        return msgspec.msgpack.encode([[folder, str(Path(name, folder, file))] for folder in folders])

    def _write_lines(self, texts: Text, path: Path) -> None:
        lines = _LINES.format([texts])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lines.data.tobytes())
        except OSError as error:
            raise explained(error, path, "write") from error


class TableParts(CutTransaction, StagedWriter):
    """A table, as who lets its files appear sees it; with `anew`, a first run begins with an empty one."""

    def __init__(
        self,
        path: str | Path,
        schema: Schema,
        by: tuple[str, ...],
        ledger: Ledger,
        *,
        anew: bool,
        form: TableForm = "parquet",
    ) -> None:
        self._place, self._run = Path(path).absolute(), ledger.name
        self.staging: TableStaging = TableStaging(str(self._place), self._run, schema, by, form)
        self._staged_files: list[list[str]] = []  # folders and files of the part that is being written
        self._waiting: list[Batch] = []
        self._lock = Lock()  # one thread writes the files of a part while another lets those of the one before appear
        self._journal = Journal(self._place / _OURS / f"{self._run}.json", ledger.after)
        if self._journal.is_new:
            if anew:
                self._clear()
            self._journal.commit(-1, [])
        for files in self._journal.undone.values():
            for _, name in files:
                (self._place / name).unlink(missing_ok=True)
        for part in self._journal.parts:
            self._publish(part, safe=True, others_may_remove=True)
        self._sweep()

    @property
    def committed(self) -> int:
        """The last part that has appeared."""
        return self._journal.committed

    def stage(self, note: bytes) -> None:
        """Take the names of the files that a staging wrote."""
        self._staged_files += msgspec.msgpack.decode(note)

    def write(self, batch: Batch) -> Refused:
        """Take records that no staging has written."""
        records, refusals = self.staging.divide(batch)
        if len(records):
            self._waiting.append(records)
        return refusals

    def cut(self, number: int) -> Callable[[], None]:
        """End the part behind the records that wait now; they do until they are in files."""
        return partial(self._prepare, number, len(self._waiting))

    def _prepare(self, number: int, count: int) -> None:
        with self._lock:
            self._journal.prepare(number, self._end_part(number, count))

    def commit(self, number: int) -> None:
        """Let all files of the parts up to this one appear."""
        with self._lock:
            self._commit(number)

    def _commit(self, number: int) -> None:
        is_prepared = number in self._journal.parts
        for part in self._journal.parts:
            if self.committed < part < number:
                self._publish(part, safe=is_prepared)  # while the journal still names its files
        self._journal.commit(number, None if is_prepared else self._end_part(number, len(self._waiting)))
        self._publish(number, safe=is_prepared)
        self._sweep()

    def rollback(self) -> None:
        """Forget the part that is being written; a staging may have written files of the next attempt already."""
        self._staged_files, self._waiting = [], []

    def close(self) -> None:
        """Remove what waited and is not prepared."""
        self.rollback()
        self._sweep()

    def _end_part(self, number: int, count: int) -> list[list[str]]:
        """End a part behind so many that wait; return the files that it consists of and the names they will have."""
        if count:
            self.stage(self.staging.write_parted(self._waiting[:count]))
            del self._waiting[:count]  # whatever goes wrong from here on, they are written
        files = [
            [staged, str(Path(folder) / f"part-{self._run}-{number:06d}-{count:04d}.{ENDINGS[self.staging.form]}")]
            for count, (folder, staged) in enumerate(self._staged_files)
        ]
        for staged, _ in files:
            sync(self.staging.folder / staged)  # here, since the name under which it will be found is written next
        self._staged_files = []
        return files

    def _publish(self, part: int, *, safe: bool, others_may_remove: bool = False) -> None:
        """Give the files of a part their places, there after the power went if `safe`; done before, it does nothing.

        Of a part of an earlier run, files that had their places may have been moved on or made one by others since then.
        """
        folders: set[Path] = set()
        gone: list[str] = []
        for staged, name in self._journal.parts[part]:
            source, target = self.staging.folder / staged, self._place / name
            try:
                is_waiting = source.exists()
                if not is_waiting and (others_may_remove or target.exists()):
                    gone += [] if target.exists() else [name]
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
                folders.update(folder for folder in target.parents if folder.is_relative_to(self._place))
            except OSError as error:
                raise explained(error, target, "write") from error
        if gone:
            which = gone[0] + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
            log.warning("%s: %s, written before, is not there any more; going on without it", self._place, which)
        for folder in folders if safe else ():  # the journal may only forget a part whose files have their names
            sync(folder)

    def _sweep(self) -> None:
        """Remove what attempts have left that came to nothing; prepared parts stay."""
        waiting = [staged for _, staged in self._staged_files]
        for number, files in self._journal.parts.items():
            waiting += [staged for staged, _ in files] if number > self.committed else []
        names = {Path(staged).parts[0] for staged in waiting}
        for folder in self.staging.folder.glob("*"):
            if folder.name not in names:
                rmtree(folder, ignore_errors=True)
        if not names:
            rmtree(self.staging.folder, ignore_errors=True)

    def _clear(self) -> None:
        """Begin with an empty table, as a Parquet file begins empty."""
        for old in self._place.glob("part-*.parquet"):
            old.unlink()
