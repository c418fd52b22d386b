"""`headwater profile FLOW`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from headwater.cli.locate import find_flow
from headwater.cli.rewire import rewired
from headwater.cli.run import FLOW, JSON
from headwater.cli.screen import console, print_json, progress
from headwater.flow.profile import Profile


def profile(
    flow: FLOW,
    output: Annotated[Path | None, typer.Option(help="write the profile to this file, for plan and simulate")] = None,
    records: Annotated[int, typer.Option(help="how many records to measure with")] = 20_000,
    input: Annotated[
        list[str] | None, typer.Option(help="read FILE instead of the source (NAME=FILE if several)")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Measure each step: time per record, overhead per activation, selectivity, bytes, state. Sinks are not written to."""
    from headwater.engine.profiler import profile as measure

    with progress("measuring"):
        measured = measure(rewired(find_flow(flow), inputs=input), records=records)
    if output is not None:
        measured.write(output)
    if as_json:
        print_json(msgspec.to_builtins(measured))
        return
    _print(measured)
    if output is not None:
        console.print(f"wrote {output}")


def _print(measured: Profile) -> None:
    table = Table(title=f"{measured.flow} on {measured.device}", title_justify="left", header_style="bold")
    table.add_column("step")
    for name in ("ns/record", "µs/turn", "records/s at 50", "out/in", "bytes in", "bytes out", "state bytes"):
        table.add_column(name, justify="right")
    table.add_column("form")
    slow = []
    for name, step in measured.steps.items():
        at_50 = 50 / (50 * step.time_s + step.overhead_s) if step.time_s + step.overhead_s else float("inf")
        ratio = " ".join(f"{value:.3g}" for value in step.selectivity.values()) or "-"
        table.add_row(
            name,
            f"{step.time_s * 1e9:,.0f}",
            f"{step.overhead_s * 1e6:,.1f}",
            f"{at_50:,.0f}",
            ratio,
            f"{step.bytes_in:,.0f}",
            f"{step.bytes_out:,.0f}",
            f"{step.state_bytes:,}",
            step.form,
        )
        slow += [name] if step.form == "python" else []
    console.print(table)
    if slow:
        console.print(
            f"{', '.join(slow)}: a Python function per record; an expression or map_batches is usually far faster"
        )
