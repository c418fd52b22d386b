"""Experiment `faults`: protocols on failing disks and links, by seeds: each crashes, goes on, and is compared at the end.

The engine's own tasks, operators, checkpointer and store, its log, and the two ends of a bridge are moved by a seeded
schedule, without a thread or a clock. A seed that shows a violation shows it again with `--seed`. Seeds are spread over the
processors.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.faults import Trial, ViolationError
from headwater_bench.faults.protocols import protocol_of, tried

QUICK, ALL = 1_000, 100_000
_PIECE = 500  #: seeds that a process is given at once

_Outcome = tuple[Counter[str], list[dict[str, Any]]]  #: what happened, and the seeds that show a violation


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    seeds: int | None = None,
    first: int = 0,
    seed: int | None = None,
    jobs: int | None = None,
) -> dict[str, Any]:
    """Run many seeds, or one again; raises AssertionError with the first that show a violation.

    Seeds go from `first` on, and are spread over so many processes: `jobs`, or as many as there are processors.
    """
    count = seeds or (QUICK if quick else ALL)
    numbers = range(seed, seed + 1) if seed is not None else range(first, first + count)
    counts: Counter[str] = Counter()
    violations: list[dict[str, Any]] = []
    began_s = time.perf_counter()
    pieces = [numbers[at : at + _PIECE] for at in range(0, len(numbers), _PIECE)]
    for counted, more in _spread(pieces, jobs or whole_cores()):
        counts += counted
        violations += more
    if output is not None:
        write_rows(violations, output / "faults.csv")
    if violations:
        raise AssertionError(f"{len(violations)} of {len(numbers)} seeds: {violations[:5]}; replay one with --seed")
    return {
        "seeds": len(numbers),
        "violations": len(violations),
        "protocols": dict(Counter(map(protocol_of, numbers))),
        **{name.replace(" ", "_"): counts[name] for name in (*Trial.COUNTED, "network cuts")},
        "seconds": round(time.perf_counter() - began_s, 1),
    }


def _spread(pieces: list[range], jobs: int) -> Iterator[_Outcome]:
    """Run the seeds in processes; a few of them here, where a debugger can follow."""
    if len(pieces) == 1 or jobs == 1:
        yield from map(_tried, pieces)
        return
    with ProcessPoolExecutor(jobs, get_context("forkserver")) as pool:
        yield from pool.map(_tried, pieces)


def _tried(seeds: range) -> _Outcome:
    counts: Counter[str] = Counter()
    violations: list[dict[str, Any]] = []
    with _quiet():
        for each in seeds:
            try:
                counts += tried(each)
            except ViolationError as violation:
                violations.append({"seed": each, "violation": str(violation)})
    return counts, violations


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return "\n".join(text_table(["", ""], [[name, value] for name, value in answer.items()]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Thousands of crashes have thousands of things to say."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
