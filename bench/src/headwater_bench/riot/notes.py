"""What is known of each sensor: from the benchmark's files, or made up for generated ones."""

from __future__ import annotations

from pathlib import Path

from headwater.data.column import Text
from headwater.data.hashing import partition_hash
from headwater_bench.riot import samples
from headwater_bench.riot.datasets import Dataset

_PLACES = ("harbour", "market", "library", "station", "school", "park", "bridge", "museum", "square", "mill")
_KINDS = ("solar", "radar", "heat", "analog", "sonar", "optic", "wired")


def notes_of(dataset: Dataset, ids: Text | None = None, beside: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return the annotations of the sensors in `ids`, made up, and of those in the benchmark's file."""
    notes: dict[str, tuple[str, ...]] = {}
    if ids is not None:
        hashes = partition_hash([ids]).tolist()
        words = (_PLACES, _KINDS, _PLACES)[: len(dataset.notes)]
        for name, h in zip(ids.tolist(), hashes, strict=True):
            notes[name] = tuple(some[(h >> 8 * k) % len(some)] for k, some in enumerate(words))
    return notes | samples.notes(dataset, beside)
