"""Iceberg tables, by pyiceberg, on the engine and on Spark alike: Iceberg's own runtime works on no Spark as new as ours.

`endpoint` describes a table, `session` asks its catalog and hides what is secret, `files` is what it consists of by
snapshots; `reader` and `ranges` read it, `uplink` adds parts to it once each, `writer` records without a checkpoint.
"""

from headwater.io.iceberg.endpoint import Iceberg

__all__ = ["Iceberg"]
