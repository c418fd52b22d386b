"""What the sinks have after all moves, held against what they have where nothing was moved."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class Verdict(NamedTuple):
    """What was lost, what came twice, and whether all else is as where nothing was moved."""

    lost: int
    twice: int
    state_equal: bool


def compared(moved: Path, undisturbed: Path, records: int) -> Verdict:
    """Compare what both have written: every record, with the state of its key when it came, and every window.

    Records are millions: what is held of each is a number that stands for it.
    """
    both = moved, undisturbed
    counts = Counter(row["n"] for row in _read(moved / "archive.jsonl"))
    states = [{hash(_frozen(row, but="came")) for row in _read(folder / "archive.jsonl")} for folder in both]
    windows = [Counter(_frozen(row) for row in _read(folder / "daily.jsonl")) for folder in both]
    return Verdict(
        lost=records - len(counts),
        twice=sum(count - 1 for count in counts.values()),
        state_equal=states[0] == states[1] and windows[0] == windows[1],
    )


def different(moved: Path, undisturbed: Path, most: int = 5) -> list[str]:
    """Return some of the rows that one of the two has and the other has not, or not so often; when they came aside."""
    mismatches: list[str] = []
    for name in ("archive.jsonl", "daily.jsonl"):
        rows = [Counter(_frozen(row, but="came") for row in _read(folder / name)) for folder in (moved, undisturbed)]
        for whose, only in (("moved", rows[0] - rows[1]), ("undisturbed", rows[1] - rows[0])):
            mismatches += [
                f"{name}, {whose} alone, {count} times: {dict(row)}" for row, count in sorted(only.items())[:most]
            ]
    return mismatches


def waits_s(moved: Path) -> list[tuple[float, float]]:
    """Return of each record when it was due and how long it took from then on to its sink, in seconds, in that order."""
    rows = ((_seconds(row["at"]), row["came"]) for row in _read(moved / "archive.jsonl"))
    return sorted((at_s, came_s - at_s) for at_s, came_s in rows)


def longest_s(waits: Iterable[tuple[float, float]], between: tuple[float, float]) -> float:
    """Return how long the record took that took longest, of those that fell due between two moments."""
    return max((wait for at_s, wait in waits if between[0] <= at_s <= between[1]), default=0.0)


def usual_s(waits: Iterable[tuple[float, float]], between: tuple[float, float]) -> float:
    """Return how long the record in the middle took, of those that fell due between two moments."""
    return statistics.median([wait for at_s, wait in waits if between[0] <= at_s <= between[1]] or [0.0])


def _read(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def _frozen(row: dict[str, Any], but: str = "") -> tuple[Any, ...]:
    return tuple(sorted((key, value) for key, value in row.items() if key != but))


def _seconds(at: Any) -> float:
    """Return a time as written to a file: in microseconds, or as text."""
    if isinstance(at, str):
        from datetime import datetime

        return datetime.fromisoformat(at).timestamp()
    return float(at) / 1e6
