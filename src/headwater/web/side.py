"""A panel beside the page: at the right, with a title and a way to close it."""

from __future__ import annotations

from typing import Any

from nicegui import ui


class Side:
    """Holds what is put into it, as in `with side:`; Escape closes it, too."""

    def __init__(self, title_id: str) -> None:
        """Take the id of its title, by which it is announced."""
        self._dialog = ui.dialog().props("position=right full-height")
        with self._dialog:
            self._body = ui.element("div").classes("hw-side").props(f"role=dialog aria-labelledby={title_id}")
        with self._body, ui.element("div").classes("hw-row"):
            self._title = ui.label().classes("hw-title").props(f"id={title_id}")
            ui.element("div").classes("hw-grow")
            ui.button("Close", on_click=self._dialog.close).props("flat dense no-caps")

    def __enter__(self) -> Any:
        return self._body.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._body.__exit__(*raised)

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return bool(self._dialog.value)

    def name(self, text: str) -> None:
        """Say what it is about."""
        self._title.set_text(text)

    def open(self) -> None:
        """Show it."""
        self._dialog.open()

    def close(self) -> None:
        """Hide it."""
        self._dialog.close()
