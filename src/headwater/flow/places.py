"""Places: what a source or sink uses and may not have to share, so that no step overwrites what another writes or reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import FlowError

if TYPE_CHECKING:
    from headwater.flow.steps import Step

_BOTH_WRITE = (
    "each would overwrite what the other has written. Give each a place of its own, or bring the streams together "
    "with union and write them once"
)
_READS_TOO = "it would be overwritten while it is read. Write to another place"
_BOTH_READ = "each would get a part of it. Read it once and use the stream twice"


@dataclass(frozen=True)
class Place:
    """A file, a part of one such as a table, or anything else that two endpoints should not use at once.

    Two places are the same if `identity` is, whatever they are called, unless both are named parts of it that differ.
    """

    name: str  #: what it is called in messages
    identity: Hashable
    part: str | None = None
    shared: bool = True  #: any number may read it; a pipe would give each of them a part
    advice: str = ""  #: what is wrong with using it twice, where that is not plain from reading and writing

    @classmethod
    def of_file(cls, path: str | Path, *, part: str | None = None) -> Place:
        """Return the place of a file or folder, the same for all its names: relative, through links, not made yet.

        >>> Place.of_file("a.csv").identity == Place.of_file("./b/../a.csv").identity
        True
        """
        name = str(path) if part is None else f"{path}:{part}"
        real, missing = Path(os.path.realpath(path)), list[str]()
        while True:
            try:
                status = real.stat()
                break
            except OSError:  # what is not there yet is known by the folder that it will be in
                missing.insert(0, real.name)
                real = real.parent
        shared = not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode))
        return cls(name, (status.st_dev, status.st_ino, *missing), part, shared)

    @classmethod
    def of_stream(cls, path: str | Path, *, writing: bool) -> Place:
        """Return the place of a file, or of standard output or input where the path is `-`."""
        if str(path) != "-":
            return cls.of_file(path)
        name = "standard output" if writing else "standard input"
        return cls(name, name, shared=False)

    def overlaps(self, other: Place) -> bool:
        """Say whether using both is using something twice."""
        parts = (self.part, other.part)
        return self.identity == other.identity and (None in parts or parts[0] == parts[1])


def place_of(endpoint: Any, *, writing: bool) -> Place | None:
    """Return what an endpoint's method `claims` says that it reads or writes; None for one that claims nothing."""
    claims = getattr(endpoint, "claims", None)
    place: Place | None = claims(writing=writing) if callable(claims) else None
    return place


def check_places(steps: Iterable[Step]) -> None:
    """Raise FlowError where two steps of a flow would get in each other's way."""
    claimed = [(step, place) for step in steps if (place := _place_of(step)) is not None]
    for (first, place), (second, other) in combinations(claimed, 2):
        reading = first.is_source and second.is_source
        if not place.overlaps(other) or (reading and place.shared):
            continue
        wrong = place.advice or (
            _BOTH_READ if reading else _READS_TOO if first.is_source or second.is_source else _BOTH_WRITE
        )
        raise FlowError(
            f"{second.where}: step {second.name!r} {_verb(second)} {other.name}, which step {first.name!r} "
            f"(from {first.where}) {_verb(first)}{' too' if first.is_source == second.is_source else ''}: {wrong}"
        )


def _place_of(step: Step) -> Place | None:
    kind: Any = step.kind
    if step.is_source:
        return place_of(kind.source, writing=False)
    return place_of(kind.sink, writing=True) if step.is_sink else None


def _verb(step: Step) -> str:
    return "reads" if step.is_source else "writes"
