"""`headwater checkpoint`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headwater.cli.parameters import JSON
from headwater.cli.screen import console, print_json
from headwater.engine.checkpoint.listing import CheckpointSummary, summaries
from headwater.io.move_marker import read_move


def checkpoint(
    folder: Annotated[Path, typer.Argument(help="folder that was given to `headwater run --checkpoint`")],
    as_json: JSON = False,
) -> None:
    """List the checkpoints of the engine in a folder: how far each source was read, and what each step keeps.

    Exits with 1 where a run could not go on from any of them.
    """
    checkpoints = summaries(folder)
    if as_json:
        print_json([asdict(each) for each in checkpoints])
    else:
        _print(checkpoints)
        move = read_move(folder)
        if move is not None:
            console.print(f"moved to {move['to']} at {move['at']}", markup=False, highlight=False, soft_wrap=True)
    if not any(each.restorable for each in checkpoints):
        raise typer.Exit(1)


def _print(summaries: list[CheckpointSummary]) -> None:
    table = Table(header_style="bold")
    for name in (
        "checkpoint",
        "made",
        "bytes",
        "builds on",
        "read up to",
        "state by step, bytes",
        "can be gone on from",
    ):
        table.add_column(name)
    for each in summaries:
        table.add_row(
            str(each.number),
            each.made,
            f"{each.bytes:,}",
            "" if each.since is None else str(each.since),
            "\n".join(f"{name}: {', '.join(map(str, at))}" for name, at in each.positions.items()),
            "\n".join(f"{name}: {size:,}" for name, size in each.state_bytes.items() if size),
            "yes" if each.restorable else f"no: {each.why}",
        )
    console.print(table)
