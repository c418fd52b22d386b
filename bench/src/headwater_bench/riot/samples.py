"""The benchmark's own sample files, where they are present."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headwater.data.column import Text
from headwater.errors import InputError
from headwater.models.model import Model, from_weka
from headwater_bench.riot.datasets import Dataset

_MESSAGES = {"CITY": "SYS_sample_data_senml.csv", "TAXI": "TAXI_sample_data_senml.csv"} | {
    "FIT": "FIT_sample_data_senml.csv"
}
_NOTES = {"CITY": "city-metadata.txt", "TAXI": "taxi-metadata-fulldataset.txt"} | {
    "FIT": "mhealth_annotation_mapping.csv"
}


def folder() -> Path | None:
    """Return where the samples are: $HEADWATER_RIOT_DATA, or `shared/data/riotbench` beside the project."""
    place = os.environ.get("HEADWATER_RIOT_DATA")
    if place:
        if not Path(place).is_dir():
            raise InputError(f"HEADWATER_RIOT_DATA names {place!r}, which is not a folder")
        return Path(place)
    beside = Path(__file__).parents[5] / "shared" / "data" / "riotbench"
    return beside if beside.is_dir() else None


def messages(dataset: Dataset) -> Text | None:
    """Return the sample's SenML messages in order, or None when the sample is not there."""
    path = _raw(_MESSAGES.get(dataset.name))
    if path is None:
        return None
    lines = path.read_bytes().splitlines()
    return Text.of_bytes([line.split(b",", 1)[1] for line in lines if line])


def notes(dataset: Dataset, beside: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return what is known of each sensor id: the annotations, empty when the file is not there.

    A file in the folder `beside` (where the input lies, say) goes before that of the samples.
    """
    name = _NOTES.get(dataset.name)
    path = beside / name if beside is not None and name is not None and (beside / name).is_file() else _raw(name)
    values_of = {}
    for number, line in enumerate(path.read_text().splitlines() if path else [], 1):
        if not line.strip():
            continue
        sensor, _, rest = line.partition(":")
        values = tuple(rest.split(","))
        if len(values) != len(dataset.notes):
            raise InputError(f"{path}, line {number}: expected id:{','.join(dataset.notes)}; got {line!r}")
        values_of[sensor] = values
    return values_of


def weka_model(name: str) -> Model | None:
    """Return a model that the benchmark's authors trained, or None when their file is not there."""
    home = folder()
    path = home / "models" / "weka_models.json" if home else None
    if path is None or not path.is_file():
        return None
    return from_weka(json.loads(path.read_text())[name], name)


def _raw(name: str | None) -> Path | None:
    home = folder()
    path = home / "raw" / name if home and name else None
    return path if path is not None and path.is_file() else None
