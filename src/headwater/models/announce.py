"""Models handed over on MQTT: whoever trained one announces it, whoever predicts takes it over while running.

A model travels whole, in its portable form, so that a gateway needs no folder in common with the cloud. The broker
keeps the last one of each kind for those who come later, or come back.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import write_whole
from headwater.io import Mqtt
from headwater.models.model import Model

_ANNOUNCED = Schema.of({"kind": str, "model": str})


def announcements(broker: str, topic: str = "models") -> Mqtt:
    """Return the source of the models announced under a topic, for `pred(..., updates=...)`."""
    return Mqtt(broker, f"{topic}/+", {"model": str}, payload="text")


def announce(models: Iterable[Model], broker: str, topic: str = "models") -> None:
    """Announce models to all who listen now and later; returns when the broker has them."""
    rows = [{"kind": model.kind, "model": model.to_json().decode()} for model in models]
    writer = Mqtt(broker, f"{topic}/{{kind}}", payload="text", qos=1, retain=True).open(_ANNOUNCED)
    try:
        write_whole(writer, Batch.of_rows(rows, _ANNOUNCED))
    finally:
        writer.close()
