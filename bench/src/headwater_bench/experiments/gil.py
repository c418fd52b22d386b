"""The same trials in a process whose kernels keep the interpreter's lock, so that scheduling can be told from Python.

Kernels release it: two workers compute at once on large batches, and many threads pay for getting it back after each call.
Those that keep it are compiled in that process, which takes half a minute; nothing of it is kept.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from subprocess import PIPE, Popen
from typing import Any

from headwater.data.jit import COMPILED, Kernel
from headwater.errors import RunError
from headwater_bench.experiments.trial import Trial

_PROGRAM = "from headwater_bench.experiments.gil import main; main()"


class _Keeping(Kernel):
    """A kernel as Numba has it by default: called with whatever comes, compiled here, with the lock kept."""

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)


def keep_lock() -> None:
    """Have all kernels that are imported, and those that they call, keep the lock from now on, in this process."""
    from numba import njit

    import headwater.data.jit.compiler  # noqa: F401  lets kernels know each other by their dispatchers

    for kernel in [each for each in gc.get_objects() if type(each) is Kernel]:
        kernel.dispatcher = njit(**({"_nrt": False} if kernel.small else {}))(kernel.py_func)
        kernel.__class__ = _Keeping


def trials(plan: Mapping[str, Any]) -> list[Trial]:
    """Return the trials of a plan of `riot`, made in a process of their own."""
    if not COMPILED:
        raise RunError("kernels that keep the lock need Numba: pip install numba")
    with Popen([sys.executable, "-c", _PROGRAM], stdin=PIPE, stdout=PIPE, text=True) as child:
        output, _ = child.communicate(json.dumps(dict(plan)))
    if child.returncode:
        raise RunError(f"the process whose kernels keep the lock ended with {child.returncode}; see what it wrote")
    return [Trial(**each) for each in json.loads(output.splitlines()[-1])]


def main() -> None:
    """Read a plan from standard input, follow it, and write its trials to standard output, as JSON."""
    from headwater_bench.experiments.riot import Plan, swept

    plan = Plan(**json.load(sys.stdin))
    keep_lock()
    rows = [asdict(trial) | {"kernels": "keep"} for trial in swept(plan)]
    sys.stdout.write(json.dumps(rows) + "\n")
