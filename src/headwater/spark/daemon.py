"""pyspark's daemon, from which Spark forks its Python workers, with what our tasks need loaded before the first fork.

A worker then has it in memory from its start, shared with all others; else each one loads it for itself, for more than
half a second of a processor. Spark starts such a daemon for each kind of worker; those that plan sources are used once for
a query, and gain nothing. Where there is a `forkserver`, it has loaded all that already.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module

MODULE = "headwater.spark.daemon"
_WORKER = "pyspark.worker"  #: what runs tasks; Spark names the kind that it wants in the first argument
#: what the driver of a query loads too, and what only tasks need
SHARED = ("pyarrow", "headwater.spark.keyed", "headwater.spark.sources.data_source")
TASKS = (_WORKER, "pandas", *SHARED)


def preload(*modules: str) -> None:
    """Load modules; what cannot be loaded here, whoever needs it will ask for and tell."""
    for module in modules:
        with suppress(ImportError):
            import_module(module)


def load(*modules: str) -> None:
    """Load modules for all processes that are forked from this one.

    They stay for good: a worker looks for garbage after each task, and need not look there.
    """
    preload(*modules)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.argv[1:] == [_WORKER]:
        load(*TASKS)
    manager()
