"""The four streams of the benchmark: their columns, units, ranges and what the flows do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.errors import FlowError, listed, suggestion


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of a message: its name, its unit, and whether it holds a number (`v`) or a text (`sv`)."""

    name: str
    unit: str
    kind: Literal["v", "sv"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a stream's messages hold, and the parameters that the flows use for it.

    A message takes part in ETL as one record for its `id` and one for each number; `meta` travels beside
    them.
    """

    name: str
    id: str  #: the field that names the sensor, and the key of its annotations
    fields: tuple[Field, ...]  #: as in a message; the time is not among them
    ranges: Mapping[str, tuple[float, float]]  #: what the range filter lets pass
    meta: tuple[str, ...]  #: fields that travel beside the observations, as the texts they came as
    interpolate: int  #: how many valid values a missing one is made of; 0 leaves it missing
    notes: tuple[str, ...]  #: what the annotation adds
    features: tuple[str, ...] = ()  #: what PRED reads; its last is what the regression predicts

    @property
    def numbers(self) -> tuple[str, ...]:
        """The fields that are observations, in the order of a message."""
        return tuple(entry.name for entry in self.fields if entry.name not in (self.id, *self.meta))

    @property
    def observed(self) -> tuple[str, ...]:
        """What one message becomes in ETL: a record for the id and one for each number."""
        return (self.id, *self.numbers)


def _fields(text: str) -> tuple[Field, ...]:
    # "name:unit" is a number, "name*:unit" a text
    fields = []
    for entry in text.split():
        name, unit = entry.split(":")
        fields.append(Field(name.rstrip("*"), unit, "sv" if name.endswith("*") else "v"))
    return tuple(fields)


CITY = Dataset(
    "CITY",
    id="source",
    fields=_fields(
        "source*:string longitude:lon latitude:lat temperature:far humidity:per light:per dust:per airquality_raw:per"
    ),
    ranges={
        "temperature": (0.7, 35.1),
        "humidity": (20.3, 69.1),
        "light": (0, 5153),
        "dust": (83.36, 3322.67),
        "airquality_raw": (12, 49),
    },
    meta=("longitude", "latitude"),
    interpolate=5,
    notes=("location", "type"),
    features=("temperature", "humidity", "light", "dust", "airquality_raw"),
)

TAXI = Dataset(
    "TAXI",
    id="taxi_identifier",
    fields=_fields(
        "taxi_identifier*:string hack_license*:string pickup_datetime*:time trip_time_in_secs:second "
        "trip_distance:meter pickup_longitude*:lon pickup_latitude*:lat dropoff_longitude*:lon "
        "dropoff_latitude*:lat payment_type*:string fare_amount:dollar surcharge:percentage "
        "mta_tax:percentage tip_amount:dollar tolls_amount:dollar total_amount:dollar"
    ),
    ranges={
        "trip_time_in_secs": (140, 3155),
        "trip_distance": (1.37, 29.86),
        "fare_amount": (6.0, 201.0),
        "tip_amount": (0.65, 38.55),
        "tolls_amount": (2.5, 18.0),
    },
    meta=(
        "hack_license",
        "pickup_datetime",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "payment_type",
    ),
    interpolate=0,
    notes=("taxi_company", "drivername", "taxi_city"),
    features=("trip_time_in_secs", "trip_distance", "fare_amount"),
)

FIT = Dataset(
    "FIT",
    id="subjectId",
    fields=_fields(
        "subjectId*:string acc_chest_x:m/s2 acc_chest_y:m/s2 acc_chest_z:m/s2 ecg_lead_1:mV ecg_lead_2:mV "
        "acc_ankle_x:m/s2 acc_ankle_y:m/s2 acc_ankle_z:m/s2 gyro_ankle_x:deg/s gyro_ankle_y:deg/s "
        "gyro_ankle_z:deg/s magnetometer_ankle_x:tesla magnetometer_ankle_y:tesla magnetometer_ankle_z:tesla "
        "acc_arm_x:m/s2 acc_arm_y:m/s2 acc_arm_z:m/s2 gyro_arm_x:deg/s gyro_arm_y:deg/s gyro_arm_z:deg/s "
        "magnetometer_arm_x:tesla magnetometer_arm_y:tesla magnetometer_arm_z:tesla label:number"
    ),
    ranges={
        "acc_chest_x": (-13.931, 4.123),
        "acc_chest_y": (-4.6376, 5.2361),
        "acc_chest_z": (-8.1881, 7.8786),
        "ecg_lead_1": (-4.9314, 6.1371),
        "ecg_lead_2": (-6.786, 6.6604),
        "acc_ankle_x": (-5.0006, 8.1472),
        "acc_ankle_y": (-14.303, 1.5909),
        "acc_ankle_z": (-8.6234, 8.6958),
        "acc_arm_x": (-9.824, 5.5778),
        "acc_arm_y": (-10.059, 8.506),
        "acc_arm_z": (-6.6739, 9.5725),
    },
    meta=(),
    interpolate=5,
    notes=("age", "gender"),
    features=(
        "acc_chest_x",
        "acc_chest_y",
        "acc_chest_z",
        "acc_ankle_x",
        "acc_ankle_y",
        "acc_ankle_z",
        "acc_arm_x",
        "acc_arm_y",
        "acc_arm_z",
        "ecg_lead_1",
    ),
)

GRID = Dataset(
    "GRID",
    id="meterid",
    fields=_fields("meterid*:string energyconsumed:kWh"),
    ranges={"energyconsumed": (1.828, 36.658)},
    meta=(),
    interpolate=5,
    notes=(),
)

DATASETS = {dataset.name: dataset for dataset in (CITY, TAXI, FIT, GRID)}


def dataset(name: str) -> Dataset:
    """Return a stream's description by its name."""
    description = DATASETS.get(name.upper())
    if description is None:
        hint = suggestion(name.upper(), DATASETS)
        raise FlowError(f"there is no data set {name!r}; expected one of {listed(DATASETS)}{hint}")
    return description
