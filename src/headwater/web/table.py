"""A table of text: whatever is in its cells is shown as it is, never as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nicegui import ui


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `about` is shown to who points at its head."""

    label: str
    kind: Literal["", "text", "wide"] = ""  #: numbers stand to the right, text to the left, and wide text may wrap
    about: str = ""


class Table(ui.element, component="table.js"):  # type: ignore[misc, call-arg]
    """Shows rows; with `on_pick`, each can be chosen, by its key."""

    def __init__(self, columns: Sequence[Column], on_pick: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._props["columns"] = [asdict(column) for column in columns]
        self._props["rows"] = []
        self._props["picks"] = on_pick is not None
        if on_pick is not None:
            self.on("pick", lambda event: on_pick(event.args))

    def show(self, rows: Sequence[tuple[Any, Sequence[str]]], chosen: Any = None) -> None:
        """Show (key, cells) of each row."""
        self._props["rows"] = [
            {"key": key, "cells": list(cells), "chosen": chosen is not None and key == chosen} for key, cells in rows
        ]
        self.update()
