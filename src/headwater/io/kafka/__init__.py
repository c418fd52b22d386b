"""Kafka: `endpoint` describes a topic, `form` makes bytes of records; the engine opens `reader`, `writer` and `uplink`.

Spark reads and writes topics by its own connector, see `headwater.spark.sources.kafka`.
"""

from headwater.io.kafka.endpoint import Kafka

__all__ = ["Kafka"]
