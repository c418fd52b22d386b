"""A slider over samples: at the last one, unless somebody goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui


class Range(ui.element, component="range.js"):  # type: ignore[misc, call-arg]
    """Goes from 0 to the last sample; `on_scrub` is called when somebody chooses one. It follows the last until then."""

    def __init__(self, label: str, on_scrub: Callable[[], Any]) -> None:
        super().__init__()
        self.at = self._last = 0
        self._props["label"], self._props["last"], self._props["at"], self._props["says"] = label, 0, 0, ""
        self._on_scrub = on_scrub
        self.on("scrub", lambda event: self._scrub(event.args))

    @property
    def follows(self) -> bool:
        """Whether it stays at the last sample, whichever that is."""
        return self.at >= self._last

    def of(self, moments: int, at: int | None) -> None:
        """Set how many samples there are, the last being the newest, and which one is shown: the last, unless given."""
        self._last = max(0, moments - 1)
        self.at = self._last if at is None else min(at, self._last)

    def follow(self) -> None:
        """Go to the last sample, and stay there."""
        self._scrub(self._last)

    def say(self, text: str) -> None:
        """Show which sample it is, to screen readers too."""
        self._props["says"], self._props["last"], self._props["at"] = text, self._last, self.at
        self.update()

    def _scrub(self, at: int) -> None:
        self.at = max(0, min(int(at), self._last))
        self._on_scrub()
