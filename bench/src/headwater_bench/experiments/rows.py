"""What every experiment writes beside its answer: its cases as CSV, its table as text."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path, *, without: Sequence[str] = ()) -> None:
    """Write cases as CSV, and make its folder; columns are those of any case, in the order in which they first come."""
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in without]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def case_table(answer: Mapping[str, Any], cases: str) -> str:
    """Lay out an answer that has cases of one form under a name: a row each, and below what else it says."""
    rows: dict[str, dict[str, Any]] = answer[cases]
    lines = text_table(["", *next(iter(rows.values()))], [[name, *row.values()] for name, row in rows.items()])
    rest = [[name, value] for name, value in answer.items() if name != cases]
    return "\n".join([*lines, "", *text_table(["", ""], rest)])


def text_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lay rows out in columns, the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
