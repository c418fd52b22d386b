"""Experiment `faults`: checkpoints on a failing disk, by seeds: each crashes, goes on, and is compared at the end.

The engine's own tasks, operators, checkpointer and store are moved by a seeded schedule, without a thread or a clock. A seed
that shows a violation shows it again with `--seed`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.faults import Trial, ViolationError

QUICK, ALL = 1_000, 100_000


def run(
    quick: bool = False, output: Path | None = None, *, seeds: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Run many seeds, or one again; raises AssertionError with the first that show a violation."""
    chosen = range(seed, seed + 1) if seed is not None else range(seeds or (QUICK if quick else ALL))
    counts: Counter[str] = Counter()
    violations: list[dict[str, Any]] = []
    began_s = time.perf_counter()
    with _quiet():
        for each in chosen:
            try:
                counts += Trial(each).run()
            except ViolationError as violation:
                violations.append({"seed": each, "violation": str(violation)})
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_rows(violations, output / "faults.csv")
    if violations:
        raise AssertionError(f"{len(violations)} of {len(chosen)} seeds: {violations[:5]}; replay one with --seed")
    return {
        "seeds": len(chosen),
        "violations": len(violations),
        **{name.replace(" ", "_"): counts[name] for name in Trial.COUNTED},
        "seconds": round(time.perf_counter() - began_s, 1),
    }


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
