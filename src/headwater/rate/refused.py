"""A promise that was refused: in words, and what would fit."""

from __future__ import annotations

from headwater.errors import RateError
from headwater.rate.estimate import Nearest


class NotPromisedError(RateError):
    """A contract that cannot be admitted; `nearest` is what would fit, where anybody can say."""

    def __init__(self, said: str, nearest: Nearest | None = None, more: str = "") -> None:
        """`said` is why, and `more` what can be done about it."""
        super().__init__(f"{said}{'' if nearest is None else f'; {nearest}'}{more}")
        self.said, self.nearest, self.more = said, nearest, more

    def offering(self, nearest: Nearest) -> NotPromisedError:
        """Return the same refusal with another offer."""
        return NotPromisedError(self.said, nearest, self.more)
