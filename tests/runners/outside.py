"""A source and a sink as another package would have them; test_outside.py copies this file out of the repository.

Cards are records of 16 bytes each, one after the other. Pages are files of JSON, one for each part that was committed.
"""

import json
import os
from pathlib import Path

import numpy as np

from headwater import Batch, Schema
from headwater.flow.endpoints import Transaction
from headwater.flow.ranges import Ranges

SCHEMA = Schema.of({"n": int, "level": float})
CARD = np.dtype([("n", "<i8"), ("level", "<f8")])


class Cards:
    """Can be read from a position, and in ranges."""

    schema = SCHEMA
    resume = "position"

    def __init__(self, path):
        self.path = Path(path)
        self.identity = {"path": str(self.path)}

    def open(self, reject, position=None):
        return Deck(self.path, position or 0)

    def check_read(self):
        self.path.stat()

    def ranges(self, wanted):
        return CardRanges(self.path, wanted.sizes)


class Deck:
    def __init__(self, path, position):
        self._file = path.open("rb")
        self.position = position

    def read(self, limit, timeout_s):
        self._file.seek(self.position * CARD.itemsize)
        cards = np.frombuffer(self._file.read(limit * CARD.itemsize), CARD)
        self.position += len(cards)
        return batch_of(cards) if len(cards) else None

    def close(self):
        self._file.close()


class CardRanges(Ranges):
    def __init__(self, path, sizes):
        self.path, self.sizes = path, sizes

    def start(self):
        return {"card": 0, "ended": False}

    def advance(self, at):
        cards = os.path.getsize(self.path) // CARD.itemsize
        card = min(cards, at["card"] + self.sizes.batch_records)
        return {"card": card, "ended": card == cards}

    def cut(self, start, end):
        middle = (start["card"] + end["card"]) // 2
        return [(start["card"], middle), (middle, end["card"])]

    def batches(self, piece, reject):
        first, stop = piece
        reader = Deck(self.path, first)
        if stop > first:
            yield reader.read(stop - first, 0)
        reader.close()


class Pages:
    """Is transactional: a page appears with its part."""

    delivery = "transactional"

    def __init__(self, folder):
        self.folder = Path(folder)

    def open(self, schema):
        self.folder.mkdir(exist_ok=True)
        return Page(self.folder / "page-all.json")

    def transaction(self, schema, ledger):
        self.folder.mkdir(exist_ok=True)
        return PagesByPart(self.folder, ledger)


class Page:
    def __init__(self, path):
        self.path, self.rows = path, []

    def write(self, batch):
        self.rows += batch.rows()

    def close(self):
        self.path.write_text(json.dumps(self.rows))


class PagesByPart(Transaction):
    def __init__(self, folder, ledger):
        self.folder, self.name = folder, ledger.name
        for path in self._pages("waiting"):
            if ledger.after is None or self._number(path) > ledger.after:
                path.unlink()
            else:
                path.rename(self._page(self._number(path)))
        self.rows = []

    @property
    def committed(self):
        return max(map(self._number, self._pages("page")), default=-1)

    def write(self, batch):
        self.rows += batch.rows()

    def prepare(self, number):
        self._page(number, "waiting").write_text(json.dumps(self.rows))
        self.rows = []

    def commit(self, number):
        if not self._page(number, "waiting").exists():
            self.prepare(number)
        for path in self._pages("waiting"):
            if self._number(path) <= number:
                path.rename(self._page(self._number(path)))

    def rollback(self):
        self.rows = []

    def close(self):
        pass

    def _page(self, number, kind="page"):
        return self.folder / f"{kind}-{self.name}-{number:06d}.json"

    def _pages(self, kind):
        return sorted(self.folder.glob(f"{kind}-{self.name}-*.json"))

    def _number(self, path):
        return int(path.stem.rpartition("-")[2])


class Hundred:
    """A source that says nothing of itself."""

    schema = SCHEMA

    def open(self, reject):
        return HundredReader()


class HundredReader:
    def __init__(self):
        self.left = [np.array([(n, n / 2) for n in range(first, first + 20)], CARD) for first in range(0, 100, 20)]

    def read(self, limit, timeout_s):
        return batch_of(self.left.pop(0)) if self.left else None

    def close(self):
        pass


class Notes:
    """A sink that says nothing of itself."""

    def __init__(self, path):
        self.path = Path(path)

    def open(self, schema):
        return Note(self.path)


class Note:
    def __init__(self, path):
        self._file = path.open("a")

    def write(self, batch):
        for row in batch.rows():
            self._file.write(f"{row['n']} {row['level']}\n")

    def close(self):
        self._file.close()


def batch_of(cards):
    return Batch.of({"n": cards["n"].copy(), "level": cards["level"].copy()}, SCHEMA)
