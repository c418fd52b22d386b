"""The client library of Kafka, and what its errors mean to us."""

from __future__ import annotations

import logging
from typing import Any

from headwater.errors import FlowError, InputError
from headwater.io.kafka.endpoint import Kafka

try:
    import confluent_kafka
except ImportError as missing:
    raise FlowError(
        f"Kafka on the engine needs confluent-kafka: pip install 'headwater[kafka]' ({missing}); or run with --on spark"
    ) from missing

log = logging.getLogger(__name__)


def settings(topic: Kafka, **more: Any) -> dict[str, Any]:
    """Return the client's settings; its own words go to our log."""
    own = {name.removeprefix("kafka."): value for name, value in topic.options.items()}
    return {"log_level": 3, "error_cb": lambda error: log.info("%s: %s", topic, error.str()), **more, **own}


def producing(topic: Kafka, **more: Any) -> dict[str, Any]:
    """Return the settings of a client that writes: a key is in the partition that Java's clients choose for it too."""
    return settings(topic, **{"partitioner": "murmur2_random", "linger.ms": 5, **more})


def unknown_option(topic: Kafka) -> str:
    """Say which option of a topic the client does not know, as one that only Java's has; nothing where it knows all."""
    try:
        confluent_kafka.Producer(producing(topic) | {"bootstrap.servers": ""})
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].str())
    return ""


def explained(topic: Kafka, doing: str, error: Any) -> InputError:
    """Return an error of the client as one of ours."""
    cause = error.args[0] if isinstance(error, confluent_kafka.KafkaException) else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return InputError(f"cannot {doing} {topic}: {text}; is a broker running there, and may this client use it?")
