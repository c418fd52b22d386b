"""Ports for the servers of tests, which are killed and started again."""

from headwater_bench.servers import free_port

__all__ = ["free_port"]
