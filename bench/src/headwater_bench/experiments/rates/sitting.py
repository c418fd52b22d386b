"""A sitting: all questions of the experiment, or some, one after the other on one machine, with one set of profiles."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from headwater.errors import RateError, RunError, listed, suggestion
from headwater.rate.grade import grade_here
from headwater_bench.experiments.rates import admission, burst, cores, cost, figures, hostile, isolation, scaling
from headwater_bench.experiments.rates.lap import home
from headwater_bench.experiments.rates.profiles import of_mix
from headwater_bench.experiments.trial import machine


class Part(Protocol):
    """A question, as a module."""

    def measure(self, quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
        """Find the answer; profiles are files by flow, and all promises are in the ledger at home."""

    def lines(self, part: dict[str, Any]) -> list[str]:
        """Return the answer for people."""


PARTS: dict[str, Part] = {
    "isolation": isolation,
    "admission": admission,
    "burst": burst,
    "hostile": hostile,
    "scaling": scaling,
    "cost": cost,
    "cores": cores,
}


def run(
    quick: bool,
    output: Path | None,
    only: Sequence[str] | None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Answer every question, or some; a part that breaks says so in its place, and the others go on.

    All that is known so far is written after each part: who interrupts a sitting has the parts that were done.
    """
    names = list(only or PARTS)
    for name in names:
        if name not in PARTS:
            raise RunError(f"there is no part {name!r}; parts are {listed(PARTS)}{suggestion(name, PARTS)}")
    grade = grade_here()
    answer: dict[str, Any] = {
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "grade": grade.name,
        "how": grade.how,
        "quick": quick,
    }
    with tempfile.TemporaryDirectory(prefix="headwater-profiles-") as folder, home() as at:
        tell("measuring what the flows need")
        profiles = of_mix(isolation.MIX, Path(folder), 0.5 if quick else 1.0)
        for name in names:
            began_s = time.monotonic()
            tell(f"{name}, part {names.index(name) + 1} of {len(names)}")
            try:
                answer[name] = PARTS[name].measure(quick, profiles, at)
            except (AssertionError, RunError, RateError, subprocess.TimeoutExpired) as error:
                # a check that failed, a promise that was refused, or what hangs, is an answer, and must be seen
                answer.setdefault("failed", {})[name] = str(error)
                tell(f"{name} failed: {error}")
            answer.setdefault("took_s", {})[name] = round(time.monotonic() - began_s, 1)
            if output is not None:
                _write(answer, name, output)
    return answer


def _write(answer: dict[str, Any], name: str, output: Path) -> None:
    """Write what is known after a part: pictures and CSV of that, and all answers so far."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "rates.json").write_bytes(msgspec.json.format(msgspec.json.encode(answer)) + b"\n")
    (output / "rates.txt").write_text(table(answer) + "\n")
    figures.write({key: part for key, part in answer.items() if key == name}, output)


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"{answer['machine']}, load {answer['load']}; grade {answer['grade']}: {answer['how']}"]
    for name, part in PARTS.items():
        if name in answer:
            lines += ["", *part.lines(answer[name])]
    lines += [f"FAILED {name}: {why}" for name, why in answer.get("failed", {}).items()]
    return "\n".join(lines)
