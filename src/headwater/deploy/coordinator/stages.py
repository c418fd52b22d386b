"""How long each stage of a move took: while all parts ran on, and from when the old ones were told to stop."""

from __future__ import annotations

#: what has come about at the end of each: processes wait for the new parts, and large state is there
_BEFORE = ("prepare", "ahead")
#: all checkpoints are here, those of the new parts are made, every site has its own, all new parts are at work
_GAP = ("stop", "cut", "hand over", "start")
STAGES = (*_BEFORE, *_GAP)


class Stages:
    """The stages of one move; a coordinator that was killed amid one does not know when it began, and tells nothing."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._ended_s: dict[str, float] = {}

    def begin(self, now_s: float) -> None:
        """Take note that a move begins; the first word counts."""
        self._began_s = now_s if self._began_s is None else self._began_s

    def end(self, stage: str, now_s: float) -> None:
        """Take note that a stage is over; the first word counts, and those before it that had none took no time."""
        if self._began_s is not None:
            self._ended_s.setdefault(stage, now_s)

    @property
    def gap_s(self) -> float | None:
        """How long not all parts were at work; None before they are again, or where it is not known."""
        if _BEFORE[-1] not in self._ended_s or _GAP[-1] not in self._ended_s:
            return None
        return self._ended_s[_GAP[-1]] - self._ended_s[_BEFORE[-1]]

    def to_json(self) -> dict[str, float]:
        """Return the seconds of each stage that is over."""
        stages_s: dict[str, float] = {}
        before_s = self._began_s or 0.0
        for stage in STAGES:
            if stage in self._ended_s:
                stages_s[stage] = round(self._ended_s[stage] - before_s, 4)
                before_s = self._ended_s[stage]
        return stages_s


def stages_text(stages_s: dict[str, float]) -> str:
    """Tell how long each stage took that records waited for, as a remark; nothing where it is not known.

    >>> stages_text({"prepare": 1.5, "ahead": 0.01, "stop": 0.0412, "cut": 0.009, "hand over": 0.02, "start": 0.0301})
    ' (stop 41, cut 9, hand over 20, start 30 ms, after 1.51 s in which it was made ready)'
    """
    gap = ", ".join(f"{stage} {1000 * stages_s[stage]:.0f}" for stage in _GAP if stage in stages_s)
    before_s = sum(stages_s.get(stage, 0.0) for stage in _BEFORE)
    return f" ({gap} ms, after {before_s:.2f} s in which it was made ready)" if gap else ""
