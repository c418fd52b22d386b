"""What to minimise: one measure, a weighted mix, or one after the other.

critical                          seconds of the slowest path
critical + 0.01 * money           a weighted mix
critical then devices             first the latency; among its optima the fewest devices
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.errors import PlacementError, listed, suggestion
from headwater.place.problem import Model, Problem
from headwater.place.score import MEASURES, Score

_TERM = re.compile(r"(?:(?P<weight>[0-9.eE+-]+)\s*\*\s*)?(?P<measure>[a-z]+)")


@dataclass(frozen=True, slots=True)
class Objective:
    """Levels to minimise in turn, each a weighted sum of measures.

    >>> Objective.parse("critical + 2 * money then devices").levels
    ((('critical', 1.0), ('money', 2.0)), (('devices', 1.0),))
    """

    levels: tuple[tuple[tuple[str, float], ...], ...]

    def __post_init__(self) -> None:
        if not self.levels or not all(self.levels):
            raise PlacementError("an objective needs at least one measure")
        for level in self.levels:
            for measure, weight in level:
                if measure not in MEASURES:
                    slip = suggestion(measure, MEASURES) or f"; known: {listed(MEASURES)}"
                    raise PlacementError(f"unknown measure '{measure}' in the objective{slip}")
                if not 0 <= weight < float("inf"):
                    raise PlacementError(f"the weight of '{measure}' must be 0 or more; got {weight}")

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read an objective from text."""
        return cls(tuple(_level(part, text) for part in re.split(r"\bthen\b", text)))

    def value(self, score: Score) -> float:
        """The first level's value."""
        return self.values(score)[0]

    def values(self, score: Score) -> tuple[float, ...]:
        """Every level's value; compare them as tuples."""
        return tuple(sum((weight * score.measure(measure) for measure, weight in level), 0.0) for level in self.levels)

    def weights(self, level: int = 0) -> dict[str, float]:
        """The weight of every measure at one level."""
        return {measure: dict(self.levels[level]).get(measure, 0.0) for measure in MEASURES}

    def __str__(self) -> str:
        parts = []
        for level in self.levels:
            parts.append(" + ".join(m if w == 1 else f"{w:g} * {m}" for m, w in level))
        return " then ".join(parts)


def _level(text: str, whole: str) -> tuple[tuple[str, float], ...]:
    terms = []
    for part in re.split(r"(?<![eE*])\+", text):
        term = _TERM.fullmatch(part.strip())
        if not term:
            raise PlacementError(
                f"cannot read '{part.strip()}' in the objective '{whole}'; "
                "write like 'critical + 0.1 * money then devices'"
            )
        try:
            terms.append((term["measure"], float(term["weight"] or 1)))
        except ValueError as slip:
            raise PlacementError(f"'{term['weight']}' in the objective '{whole}' is not a number") from slip
    return tuple(terms)


CRITICAL, AGGREGATE = Objective.parse("critical"), Objective.parse("aggregate")


def usual(problem: Problem) -> Objective:
    """The objective that the paper behind a problem's model minimises."""
    return CRITICAL if problem.model is Model.ROUND_ROBIN else AGGREGATE
