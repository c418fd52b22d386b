"""PostgreSQL: `endpoint` describes a table, `session` speaks to the server; `writer`, `reader` and `uplink` are opened."""

from headwater.io.postgres.endpoint import Postgres

__all__ = ["Postgres"]
