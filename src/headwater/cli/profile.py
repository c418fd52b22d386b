"""`headwater profile FLOW`, and `headwater profile --device`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from headwater.cli.locate import find_flow
from headwater.cli.parameters import JSON
from headwater.cli.promise import contract_of
from headwater.cli.rewire import rewire
from headwater.cli.screen import console, print_json, progress
from headwater.cli.writable import check_file
from headwater.errors import FlowError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Demand, Profile

_RATE = "10 000/s"


def profile(
    flow: Annotated[
        str | None, typer.Argument(help="module:name, path/to/flow.py[:name], or a bundled flow such as riot:etl")
    ] = None,
    device: Annotated[bool, typer.Option("--device", help="measure this machine instead of a flow")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="write the profile to this file, for plan and simulate; with --device, a net of this machine"
        ),
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="how many records to measure with [default: 20000, with --contract 3000]")
    ] = None,
    contract: Annotated[
        bool, typer.Option("--contract", help="measure too what a promised rate needs, for admission")
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(help="with --contract, the rate: 20000/s [default: the flow's own contract, or 10000/s]"),
    ] = None,
    within: Annotated[str | None, typer.Option(help="with --contract, the latency to promise, such as 50ms")] = None,
    input: Annotated[
        list[str] | None, typer.Option(help="read FILE instead of the source (NAME=FILE if several)")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Measure each step: time per record, overhead per activation, selectivity, bytes, state. Sinks are not written to.

    With --device, measure the machine itself and describe it as a class of devices for a net file. With --contract, measure
    what a promised rate needs: each step's μ, b, s, tmax, A and W as Storm-RTS has them, and the cores reserved here.

    Examples: headwater profile flow.py --output profile.json; headwater profile flow.py --contract --rate 20000/s;
    headwater profile --device --output here.toml
    """
    check_file("--output", output)
    if device:
        if flow is not None:
            raise FlowError(f"--device measures the machine, not a flow; leave {flow!r} out, or leave --device out")
        _device(output, as_json)
        return
    if flow is None:
        raise FlowError(
            "say which flow to profile (module:name, path/to/flow.py or riot:etl), or --device for the machine"
        )
    if not contract and (rate or within):
        raise FlowError(f"--{'rate' if rate else 'within'} is of a promise: say --contract too")
    dataflow = rewire(find_flow(flow), inputs=input)
    with progress("measuring"):
        costs = _measure_demand(dataflow, rate, within, records) if contract else _measure(dataflow, records)
    if output is not None:
        costs.write(output)
    if as_json:
        print_json(msgspec.to_builtins(costs))
        return
    _print(costs)
    if costs.demand is not None:
        _print_demand(costs.demand)
    if output is not None:
        console.print(f"wrote {output}")


def _measure(flow: Flow, records: int | None) -> Profile:
    from headwater.engine.profiler import profile as measure

    return measure(flow, records=records or 20_000)


def _measure_demand(flow: Flow, rate: str | None, within: str | None, records: int | None) -> Profile:
    from headwater.rate.profiler import RECORDS, demanding

    contract = contract_of(flow, rate, within, option="--rate") or Contract.of(_RATE, within)
    return demanding(flow, contract, records=records or RECORDS)


def _device(output: Path | None, as_json: bool) -> None:
    from headwater import net as nets
    from headwater.engine import machine

    with progress("measuring"):
        description = machine.describe()
    if output is not None:
        nets.write(machine.as_net(description), output)
    if as_json:
        print_json(description)
        return
    console.print(
        Text(description["name"] + ":", "bold"),
        f"{description['processor']}, {description['cores']:g} cores",
        highlight=False,
    )
    table = Table(show_header=False)
    power = description["energy"]
    rows = [
        ("memory", f"{description['memory_bytes'] / 1e9:,.1f} GB"),
        (
            "operations/s of a core",
            f"{description['operations_per_s']:.3g}{'' if description['compiled'] else ', not compiled'}",
        ),
        ("cpu_ips, all cores", f"{description['cpu_ips']:.3g}"),
        ("memory copied", f"{description['copied_bytes_per_s'] / 1e9:,.1f} GB/s"),
        *((f"records/s of a core, {query}", f"{rate:,}") for query, rate in description["records_per_s"].items()),
        (
            "power",
            f"{power['rest_w']:.1f} W, one core busy {power['busy_w']:.1f} W" if power["readable"] else power["why"],
        ),
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print("operations are those of a loop of ours: take all classes of a net from one scale", highlight=False)
    if output is not None:
        console.print(f"wrote {output}")


def _print(costs: Profile) -> None:
    table = Table(title=f"{costs.flow} on {costs.device}", title_justify="left", header_style="bold")
    table.add_column("step")
    for name in ("ns/record", "µs/turn", "records/s at 50", "out/in", "bytes in", "bytes out", "state bytes"):
        table.add_column(name, justify="right")
    table.add_column("form")
    slow = []
    for name, step in costs.steps.items():
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


def _print_demand(demand: Demand) -> None:
    from headwater.rate.estimate import KAPPA, busy, cores, invocations

    at = f"{demand.rate_hz:,.0f}/s, a tick of {demand.tick_s * 1e3:g} ms"
    table = Table(title=f"what a promise of {at} needs", title_justify="left", header_style="bold")
    table.add_column("step")
    for name in ("μ", "b", "s cores", "tmax µs", "A /s", "W cores", "cold ns/record", "cold µs/tick", "busy cores"):
        table.add_column(name, justify="right")
    papers = 0.0
    for name, step in demand.steps.items():
        guaranteed = invocations(step, demand.rate_hz)
        papers += guaranteed.cores
        table.add_row(
            name,
            f"{step.scale:.3g}",
            f"{step.batch:,}",
            f"{step.cores:.2f}",
            f"{step.limit_s * 1e6:,.0f}",
            f"{guaranteed.per_s:,.0f}",
            f"{guaranteed.cores:.3f}",
            f"{step.record_s * 1e9:,.0f}",
            f"{step.tick_s * 1e6:,.0f}",
            f"{busy(step, demand.rate_hz, demand.tick_s):.3f}",
        )
    console.print(table)
    reservation = cores(demand, demand.rate_hz, demand.tick_s)
    console.print(
        f"Storm-RTS would reserve {papers:.2f} cores; reserved here {reservation:.2f}: {KAPPA:g} × the busy cores and "
        f"{demand.engine_s * 1e6:.0f} µs of the engine per tick",
        highlight=False,
    )
