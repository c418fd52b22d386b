"""Dead letters in a folder: kept through any crash, to be looked at, mended and replayed; each until it is released.

The folder has two logs: `letters`, which the run appends to, and `released`, the numbers of those that are done with. So a
run and whoever looks after its dead letters work side by side. A run that goes on from a checkpoint makes the letters
behind it once more: it releases those that are there already, and no number ever means another letter. `checkpoints` says
where such runs keep how far they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from headwater.clock import latest_ns
from headwater.data.batch import CREATED, Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, RunError
from headwater.flow.endpoints import CutTransaction, DeliverySemantics, Ledger
from headwater.io.files import replace_whole
from headwater.io.log import Bounds, Log, Reader
from headwater.io.transactions.journal import Journal

_LETTERS, _RELEASED, _CHECKPOINTS = "letters", "released", "checkpoints"


class Letter(msgspec.Struct, frozen=True):
    """A record that broke a step."""

    step: str  #: or what a sink is called, which refused it when its step was done with it
    error: str
    record: str  #: as JSON, or the text that could not be read
    at_ns: int  #: when it broke the step
    created_ns: int  #: when the record was created
    id: int = -1  #: its number in the store
    by: str = ""  #: the ledger of the runs that made it, and may make it again; none without a checkpoint

    def to_json(self) -> dict[str, Any]:
        """Describe the letter; the record as what it is, where it is JSON."""
        try:
            record = msgspec.json.decode(self.record)
        except msgspec.DecodeError:
            record = self.record
        document = msgspec.structs.asdict(self) | {"record": record}
        del document["by"]  # means nothing to a reader
        return document


@dataclass(frozen=True, slots=True)
class DeadLetterFolder:
    """A sink of dead letters, and what is in it."""

    folder: str | Path
    bounds: Bounds | None = None  #: of what is kept

    delivery: ClassVar[DeliverySemantics] = "transactional"

    def open(self, schema: Schema) -> LetterWriter:
        """Start keeping dead letters; they are safe when `write` returns."""
        return self.writer()

    def writer(self) -> LetterWriter:
        """Start keeping dead letters, all of which have the same columns."""
        return LetterWriter(self)

    def appended(self, schema: Schema) -> LetterWriter:
        """Start keeping more of them: those that are there stay anyway."""
        return self.open(schema)

    def transaction(self, schema: Schema, ledger: Ledger) -> _Parts:
        """Start keeping dead letters in parts: each is there once, however often a run is cut off and goes on."""
        return _Parts(self, ledger)

    def letters(self) -> Iterator[Letter]:
        """Return the letters that are not released, oldest first; a run may be at work on the folder."""
        letters = Path(self.folder) / _LETTERS
        if not letters.is_dir():
            raise RunError(f"{str(self.folder)!r} holds no dead letters; a run keeps them there with --dead")
        done_ids = set(_numbers(Path(self.folder)))
        reader = Reader(letters)
        try:
            while entries := reader.read():
                for entry in entries:
                    if entry.position not in done_ids:
                        letter = msgspec.json.decode(entry.data, type=Letter)
                        yield msgspec.structs.replace(letter, id=entry.position)
        finally:
            reader.close()

    def chosen(self, ids: Collection[int], step: str | None = None) -> list[Letter]:
        """Return letters by number, of one step alone if one is named; all, where no number is given."""
        wanted = set(ids)
        kept = self.letters() if (Path(self.folder) / _LETTERS).is_dir() else ()
        found = [each for each in kept if (not wanted or each.id in wanted) and step in (None, each.step)]
        if lacking := wanted - {letter.id for letter in found}:
            raise FlowError(f"there is no dead letter {min(lacking)}; it may have been replayed already")
        return found

    def checkpoint_of(self, letter: Letter) -> Path | None:
        """Return where the run that made a letter keeps how far it is; None for one that does not."""
        note = Path(self.folder) / _CHECKPOINTS / letter.by
        return Path(note.read_text()) if letter.by and note.exists() else None

    def release(self, numbers: Iterable[int]) -> None:
        """Release letters; this is safe when it returns."""
        numbers = list(numbers)
        if not numbers:
            return
        log = Log(Path(self.folder) / _RELEASED)
        try:
            for number in numbers:
                log.append(str(number).encode())
        finally:
            log.close()

    def __str__(self) -> str:
        return str(self.folder)


class LetterWriter:
    """Keeps dead letters in a folder."""

    def __init__(self, store: DeadLetterFolder, by: str = "") -> None:
        self._store, self._by = store, by
        self._log = Log(Path(store.folder) / _LETTERS, store.bounds)
        self._give_back()

    @property
    def dropped(self) -> Mapping[str, int]:
        """Letters that the bounds have cost, by reason."""
        return self._log.dropped

    def _give_back(self) -> None:
        """Give the disk back if all letters are released."""
        done_ids = set(_numbers(Path(self._store.folder)))
        if done_ids and done_ids.issuperset(range(self._log.first, self._log.end)):
            self._log.clear()

    def write(self, batch: Batch) -> None:
        """Keep the letters."""
        at_ns = latest_ns()
        for row, created_ns in zip(batch.rows(), batch.stamps[:, CREATED].tolist(), strict=True):
            letter = Letter(row["step"], row["error"], row["record"], at_ns, created_ns, by=self._by)
            self._log.append(msgspec.json.encode(letter), created_ns=created_ns)
        self._log.sync()

    def close(self) -> None:
        """Leave the folder."""
        self._log.close()


class _Parts(LetterWriter, CutTransaction):
    """The journal says where each part ended; letters stand in the folder as soon as they are written."""

    def __init__(self, store: DeadLetterFolder, ledger: Ledger) -> None:
        self._journal = Journal.of(ledger)
        super().__init__(store, ledger.name)
        checkpoint = ledger.folder.parent.parent
        replace_whole(Path(store.folder) / _CHECKPOINTS / ledger.name, str(checkpoint.absolute()).encode())
        if self._journal.is_new:
            self._journal.commit(-1, self._log.end)
        self.rollback()

    @property
    def committed(self) -> int:
        """The last part that is there."""
        return self._journal.committed

    def cut(self, number: int) -> Callable[[], None]:
        """End a part here; what was written is safe, and the note is for later."""
        return partial(self._journal.prepare, number, self._log.end)

    def commit(self, number: int) -> None:
        """Take note that all parts up to this one count; one that was not prepared ends here."""
        self._journal.commit(number, self._log.end)

    def rollback(self) -> None:
        """Release the letters of these runs behind the last part: they come again. Those of others stay."""
        end = self._journal.last
        if end is None:
            return
        reader = self._log.reader(min(end, self._log.end))
        try:
            repeats: list[int] = []
            while entries := reader.read():
                letters = ((entry.position, msgspec.json.decode(entry.data, type=Letter)) for entry in entries)
                repeats += [number for number, letter in letters if letter.by == self._by]
        finally:
            reader.close()
        self._store.release(repeats)


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
