"""`headwater status`."""

from __future__ import annotations

import msgspec
from rich.table import Table

from headwater.cli.run import JSON
from headwater.cli.screen import console, print_json
from headwater.rate import board
from headwater.rate.messages import Board


def status(as_json: JSON = False) -> None:
    """Show what is promised on this machine: flows, their rates, reserved and used cores, windows kept and broken.

    It is read from the supervisor in the runtime folder (`HEADWATER_RUNTIME`; /run/headwater for root), which runs as long
    as there are promises.
    """
    found = board()
    if as_json:
        print_json({"supervisor": found is not None, **({} if found is None else msgspec.to_builtins(found))})
    elif found is None:
        console.print("nothing is promised here: no supervisor runs")
    else:
        _print(found)


def _print(found: Board) -> None:
    held = found.capacity - found.left
    console.print(
        f"{held:.2f} of {found.capacity:.2f} cores promised ({found.cores:g} in all); grade {found.grade}: {found.how}",
        highlight=False,
    )
    if found.better:
        console.print(f"a better grade: {found.better}", highlight=False, markup=False)
    table = Table(header_style="bold")
    table.add_column("flow")
    for name in ("process", "promised", "reserved", "used", "kept", "broken", ""):
        table.add_column(name, justify="right")
    for lane in found.lanes:
        table.add_row(
            lane.flow,
            str(lane.pid),
            str(lane.contract),
            f"{lane.cores:.2f}",
            f"{lane.used:.2f}",
            f"{lane.kept:,}",
            f"{lane.broken:,}",
            "above its promise" if lane.above else "",
        )
    console.print(table)
