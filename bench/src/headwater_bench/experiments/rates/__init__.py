"""Experiment `rates`: do promises hold? The figures of Storm-RTS on this machine, beside what others do with the same steps.

Every flow, every competitor and every system runs in processes of its own; what counts is what came to the sink, second by
second, of what was due. `sitting` asks all questions, one after the other.

loads      what is offered, and who judges
lap        one flow under one system, as a process; systems begins it
dhalion    serverless                                    baselines that were built for this
scan       who competes
isolation  admission  burst  hostile  scaling  cost  cores      one question each; two is what cores asks for real
figures    pictures and CSV
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["run", "table"]


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    only: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Answer every question, or some; a part that breaks says so in its place, and the others go on.

    What a part has found is written as it ends.
    """
    from headwater_bench.experiments.rates import sitting  # a lap, whose start is measured, does without

    return sitting.run(quick, output, only, tell)


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    from headwater_bench.experiments.rates import sitting

    return sitting.table(answer)
