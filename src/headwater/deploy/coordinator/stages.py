"""How long each stage of a move took, from when the old parts were told to stop until all new ones are at work."""

from __future__ import annotations

#: what has come about at the end of each: all checkpoints are here, those of the new parts are made, every site has its own
STAGES = ("stop", "cut", "hand over", "start")


class Stages:
    """The stages of one move; a coordinator that was killed amid one does not know when it began, and tells nothing."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._ended_s: dict[str, float] = {}

    def begin(self, now_s: float) -> None:
        """Take note that the old parts are told to stop; the first word counts."""
        self._began_s = now_s if self._began_s is None else self._began_s

    def end(self, stage: str, now_s: float) -> None:
        """Take note that a stage is over; the first word counts, and those before it that had none took no time."""
        if self._began_s is not None:
            self._ended_s.setdefault(stage, now_s)

    @property
    def gap_s(self) -> float | None:
        """How long it was until all parts were at work again; None before that, or where it is not known."""
        if self._began_s is None or STAGES[-1] not in self._ended_s:
            return None
        return self._ended_s[STAGES[-1]] - self._began_s

    def to_json(self) -> dict[str, float]:
        """Return the seconds of each stage that is over."""
        found: dict[str, float] = {}
        before_s = self._began_s or 0.0
        for stage in STAGES:
            if stage in self._ended_s:
                found[stage] = round(self._ended_s[stage] - before_s, 4)
                before_s = self._ended_s[stage]
        return found
