"""Kafka: `endpoint` describes a topic, `form` makes bytes of records; the engine opens `reader`, `writer` and `uplink`.

`transactions` are those of the cluster, which Spark's driver writes by too; Spark reads by its own connector, see
`headwater.spark.sources.kafka`.
"""

from headwater.io.kafka.endpoint import Kafka

__all__ = ["Kafka"]
