"""pyspark's daemon, from which Spark forks its Python workers, with what our tasks need loaded before the first fork.

A worker then has it in memory from its start, shared with all others; else each one loads it for itself, for more than
half a second of a processor. Spark starts such a daemon for each kind of worker; those that plan sources are used once for
a query, and gain nothing. Where there is a `forkserver`, it has loaded all that already.
"""

from __future__ import annotations

import gc
import os
import signal
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


def leave_signals() -> None:
    """Ignore Ctrl-C and SIGTERM, before Java or another program is run that ends with this run: they are for the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def pass_over_sigterm() -> None:
    """Do nothing about SIGTERM, by a handler: a program that a step starts would ignore what is ignored here, too."""
    signal.signal(signal.SIGTERM, lambda *_: None)


def _heed_sigterm_below(manager: int) -> None:
    """Have processes that a step forks, though not workers, end by SIGTERM."""

    def forked() -> None:
        if os.getppid() != manager:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    os.register_at_fork(after_in_child=forked)


if __name__ == "__main__":
    from pyspark import daemon

    pass_over_sigterm()
    _heed_sigterm_below(os.getpid())
    daemon.SIGTERM = signal.SIGUSR2  # by which it would end itself, and its workers
    if sys.argv[1:] == [_WORKER]:
        load(*TASKS)
    daemon.manager()
