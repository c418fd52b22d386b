"""A field for the text of a query, in which mistakes are marked where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui


class Editor(ui.element, component="editor.js"):  # type: ignore[misc, call-arg]
    """Has a text; `on_typed` is called when it was changed, `on_ask` when it is to be asked (Ctrl-Enter)."""

    def __init__(self, label: str, on_typed: Callable[[], Any], on_ask: Callable[[], Any]) -> None:
        super().__init__()
        self.text = ""  #: as it is on the page, but for the last keys
        self._props["label"], self._props["begin"], self._props["fault"] = label, "", None
        self._on_typed = on_typed
        self.on("typed", self._take)
        self.on("ask", lambda: on_ask())

    def begin_with(self, text: str) -> None:
        """Have a text to go on from, unless somebody has typed one."""
        if self.text in ("", self._props["begin"]):
            self.text = text
        self._props["begin"] = text
        self.update()

    def mark(self, text: str, fault: Mapping[str, Any] | None) -> None:
        """Mark what is wrong in a text, for as long as it is that; what was said of one before comes too late."""
        if text != self.text:
            return
        self._props["fault"] = None if fault is None else {**fault, "of": text}
        self.update()

    async def _take(self, event: Any) -> None:
        self.text = event.args
        await self._on_typed()
