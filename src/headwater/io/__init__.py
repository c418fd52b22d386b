"""Sources and sinks, one system per file; `memory` serves tests and documentation.

`generator` makes and replays records at a rate of `rates`, `ranges` are sources cut into parts that can be read side by
side, `transactions` sinks written in parts that are there once, `receiving` sources that are read by way of a
log. Names are imported when they are first used, so
that a flow pays only for the systems it talks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_names

if TYPE_CHECKING:
    from headwater.io.console import Console as Console
    from headwater.io.csv import Csv as Csv
    from headwater.io.folder import Folder as Folder
    from headwater.io.forwarding import Forward as Forward
    from headwater.io.forwarding import forward as forward
    from headwater.io.generator import Generate as Generate
    from headwater.io.generator import Replay as Replay
    from headwater.io.http import Http as Http
    from headwater.io.http import Webhook as Webhook
    from headwater.io.iceberg import Iceberg as Iceberg
    from headwater.io.jdbc import Jdbc as Jdbc
    from headwater.io.jsonl import JsonLines as JsonLines
    from headwater.io.kafka import Kafka as Kafka
    from headwater.io.memory import Collect as Collect
    from headwater.io.memory import Discard as Discard
    from headwater.io.memory import Failing as Failing
    from headwater.io.memory import Items as Items
    from headwater.io.mqtt import Mqtt as Mqtt
    from headwater.io.mqtt import Will as Will
    from headwater.io.parquet import Parquet as Parquet
    from headwater.io.postgres import Postgres as Postgres
    from headwater.io.spark_table import SparkTable as SparkTable
    from headwater.io.spill import SpillFile as SpillFile
    from headwater.io.sqlite import Sqlite as Sqlite
    from headwater.io.table import ParquetTable as ParquetTable

_HOMES = {
    "Collect": "memory",
    "Console": "console",
    "Csv": "csv",
    "Discard": "memory",
    "Failing": "memory",
    "Folder": "folder",
    "Forward": "forwarding",
    "Generate": "generator",
    "Http": "http",
    "Iceberg": "iceberg",
    "Items": "memory",
    "Jdbc": "jdbc",
    "JsonLines": "jsonl",
    "Kafka": "kafka",
    "Mqtt": "mqtt",
    "Parquet": "parquet",
    "ParquetTable": "table",
    "Postgres": "postgres",
    "Replay": "generator",
    "SparkTable": "spark_table",
    "SpillFile": "spill",
    "Sqlite": "sqlite",
    "Webhook": "http",
    "Will": "mqtt",
    "forward": "forwarding",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
