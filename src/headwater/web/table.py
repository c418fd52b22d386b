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

    def __init__(
        self, columns: Sequence[Column], on_pick: Callable[[Any], Any] | None = None, *, spare: bool = False
    ) -> None:
        """Have columns; `spare` ones of which no row has anything are left out."""
        super().__init__()
        self._columns, self._spare = columns, spare
        self._props["columns"] = [asdict(column) for column in columns]
        self._props["rows"] = []
        self._props["picks"] = on_pick is not None
        if on_pick is not None:
            self.on("pick", lambda event: on_pick(event.args))

    def show(self, rows: Sequence[tuple[Any, Sequence[str]]], selection: Any = None) -> None:
        """Show (key, cells) of each row."""
        if self._spare:
            columns = [at for at in range(len(self._columns)) if any(cells[at] for _, cells in rows)]
            self._props["columns"] = [asdict(self._columns[at]) for at in columns]
            rows = [(key, [cells[at] for at in columns]) for key, cells in rows]
        self._props["rows"] = [
            {"key": key, "cells": list(cells), "chosen": selection is not None and key == selection}
            for key, cells in rows
        ]
        self.update()
