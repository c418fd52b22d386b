"""Tables that consist of files: all that one has when reading begins, and then what each later commit adds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from headwater.data.schema import Schema
from headwater.errors import InputError, listed, suggestion
from headwater.flow.ranges import Offset, Piece, RangeRequest, Ranges


class FileRanges(Ranges):
    """Files of one stage after the other: the first has all that is there, each later one what a commit added.

    An offset names a stage, and counts the files of it that lie before; with `row`, some of the next one are read, too.
    """

    def __init__(self, schema: Schema, request: RangeRequest, *, follow: bool) -> None:
        self._follow, self.sizes = follow, request.sizes
        self._schema = schema if request.columns is None else schema.only(request.columns)
        self.columns = tuple(self._schema) if len(self._schema) < len(schema) else None

    @abstractmethod
    def _files(self, at: Offset) -> list[Any]:
        """Return all files of an offset's stage, in their order."""

    @abstractmethod
    def _behind(self, at: Offset) -> Offset | None:
        """Return where the next stage begins; None while there is none, or if none is waited for."""

    @abstractmethod
    def _size(self, file: Any) -> int:
        """Return how many bytes a file has."""

    @abstractmethod
    def _part(self, at: Offset, file: Any) -> tuple[Any, ...]:
        """Return what a piece says of the file behind an offset."""

    def advance(self, at: Offset) -> Offset:
        """Return the file up to which the next micro-batch reads."""
        remaining, files = self.sizes.batch_bytes, self._files(at)
        while remaining > 0:
            if at["file"] < len(files):
                remaining -= self._size(files[at["file"]])
                at = _moved(at, at["file"] + 1)
            elif (later := self._behind(at)) is not None:
                at, files = later, self._files(later)
            else:
                break
        at_end = not self._follow and at["file"] >= len(files) and self._behind(at) is None
        return {**at, "ended": at_end}

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return files, in pieces of about equal size."""
        files: list[tuple[Offset, Any]] = []
        at = start
        while _stage(at) != _stage(end):
            files += self._from(at, None)
            later = self._behind(at)
            if later is None:
                raise InputError(f"cannot read from {start} to {end}: what was added in between is no longer there")
            at = later
        files += self._from(at, end["file"])
        size = sum(self._size(file) for _, file in files)
        count = self.sizes.pieces(size, self.sizes.piece_bytes)
        pieces: list[list[Any]] = [[] for _ in range(count)]
        before = 0
        for place, file in files:
            pieces[min(count - 1, before * count // max(1, size))].append(self._part(place, file))
            before += self._size(file)
        return [tuple(piece) for piece in pieces if piece]

    def share(self, at: Offset) -> float | None:
        """Return it by files, where no more are waited for."""
        return None if self._follow else at["file"] / max(1, len(self._files(at)))

    def _from(self, at: Offset, stop: int | None) -> list[tuple[Offset, Any]]:
        """Return the files behind an offset up to one, each with where it is."""
        begin = at["file"]
        return [
            (at if number == begin else _moved(at, number), file)
            for number, file in enumerate(self._files(at)[begin:stop], start=begin)
        ]


def check_columns(place: Any, schema: Iterable[str], columns: Iterable[str]) -> None:
    """Raise InputError where a table lacks a column that is to be read."""
    there = list(columns)
    for name in schema:
        if name not in there:
            advice = f"columns are {listed(there)}{suggestion(name, there)}"
            raise InputError(f"cannot read {place}: it has no column {name!r}; {advice}")


def removal_error(place: Any, commit: str) -> InputError:
    """Return the error for a commit that took records out of a table."""
    return InputError(
        f"records were taken out of {place} in {commit}, which a stream that has read them cannot take back; begin anew "
        "with another checkpoint"
    )


def _moved(at: Offset, file: int) -> Offset:
    return {name: value for name, value in at.items() if name != "row"} | {"file": file}


def _stage(at: Offset) -> Offset:
    return {name: value for name, value in at.items() if name not in ("file", "row", "ended")}
