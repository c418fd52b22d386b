"""Parts for a topic: the messages of a part have the same ids whenever they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.mqtt.endpoint import Mqtt
from headwater.io.mqtt.writer import MqttWriter


class MqttUplink:
    """The way to a broker, which may be away."""

    def __init__(self, sink: Mqtt, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._writer: MqttWriter | None = None

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part at the broker: once more, should it be there in part already; whoever receives it can tell."""
        writer = self._writer = self._writer or MqttWriter(self._sink, self._schema)
        try:
            first, refusals = 0, []
            for batch in batches:
                refusals.append((batch, writer.write_keyed(batch, f"{name}-{number}", first)))
                first += batch.length
            writer.flush()
        except InputError:  # what it has of the part is sent again with the rest, by another
            self.close()
            raise
        return [(batch, why) for batch, why in refusals if why]

    def close(self) -> None:
        """Let the connection go."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(InputError):  # what the broker has not taken is kept by who delivers
                writer.close()
