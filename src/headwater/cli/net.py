"""`headwater net make|show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from headwater import net as nets
from headwater.cli.parameters import JSON
from headwater.cli.screen import console, print_json, progress
from headwater.cli.writable import check_file
from headwater.errors import NetError, listed, suggestion
from headwater.net.device import to_table

app = typer.Typer(help="Make and show nets: where steps could run.", no_args_is_help=True)
KINDS = ("cloud-edge", "pis", "city")


@app.command()
def make(
    output: Annotated[Path, typer.Argument(help="file to write: .toml, .json, or .npz for millions of devices")],
    kind: Annotated[str, typer.Option(help=f"what to draw: {', '.join(KINDS)}")] = "cloud-edge",
    clouds: Annotated[int, typer.Option(help="clouds of a cloud-edge net or a city")] = 10,
    sites: Annotated[int, typer.Option(help="edge sites of a cloud-edge net")] = 10,
    devices: Annotated[int, typer.Option(help="devices per site, or in all for pis and city")] = 10,
    seed: Annotated[int, typer.Option(help="the same seed draws the same net")] = 0,
    as_json: JSON = False,
) -> None:
    """Draw a net and write it to a file."""
    if kind not in KINDS:
        raise NetError(f"there is no kind of net {kind!r}; kinds are {listed(KINDS)}{suggestion(kind, KINDS)}")
    check_file("OUTPUT", output)
    with progress("drawing"):
        if kind == "cloud-edge":
            net = nets.cloud_edge(clouds, sites, devices, seed=seed)
        elif kind == "pis":
            net = nets.pis_and_vm(devices)
        else:
            net = nets.city(devices, clouds=clouds, seed=seed)
        nets.write(net, output)
    if as_json:
        print_json(describe(net) | {"file": str(output)})
    else:
        console.print(f"wrote {output}: {len(net):,} devices in {len(net.zones):,} zones")


@app.command()
def show(net: Annotated[Path, typer.Argument(help="net file")], as_json: JSON = False) -> None:
    """Check a net file and show what is in it."""
    document = describe(nets.read(net))
    if as_json:
        print_json(document)
        return
    console.print(
        Text(document["name"] + ":", "bold"),
        f"{document['devices']:,} devices in {document['zones']:,} zones "
        f"({document['cloud_zones']:,} of them clouds), trust zones {listed(document['trust'])}",
    )
    table = Table(header_style="bold")
    for column in (
        "class",
        "devices",
        "instructions/s",
        "memory MB",
        "access Mbit/s",
        "battery mAh",
        "per hour",
    ):
        table.add_column(column, justify="left" if column == "class" else "right")
    for row in document["classes"]:
        table.add_row(
            row["class"],
            f"{row['devices']:,}",
            f"{row['cpu_ips']:.3g}",
            _number(row.get("memory_bytes"), 1e6),
            _number(row.get("access_bps"), 1e6),
            _number(row.get("battery_mah")),
            _number(row.get("price_per_hour")),
        )
    console.print(table)
    wan = document["wan_s"]
    if wan:
        console.print(f"between zones {1e3 * wan['least']:.2f} to {1e3 * wan['most']:.2f} ms ({wan['kind']})")
    for pair in document["disconnected"]:
        console.print(f"no way between {pair[0]} and {pair[1]}")


def describe(net: nets.Net) -> dict[str, Any]:
    """A net in numbers; latencies and gaps are looked up for the first 2,000 zones."""
    rows = [net.wan.row(zone) for zone in range(min(len(net.zones), 2000))]
    far = [row[np.arange(len(row)) != zone] for zone, row in enumerate(rows) if len(row) > 1]
    finite = [row[np.isfinite(row)] for row in far]
    gaps = [
        (net.zones[a], net.zones[int(b)]) for a, row in enumerate(rows) for b in np.flatnonzero(np.isinf(row)) if a < b
    ]
    return {
        "name": net.name,
        "devices": len(net),
        "zones": len(net.zones),
        "cloud_zones": int(net.cloud_zones.sum()),
        "trust": sorted(set(net.trust)),
        "classes": [
            {"class": c.name, "devices": int((net.class_of == k).sum()), **to_table(c)}
            for k, c in enumerate(net.classes)
        ],
        "wan_s": {
            "kind": type(net.wan).__name__.lower(),
            "least": float(min(row.min() for row in finite)),
            "most": float(max(row.max() for row in finite)),
        }
        if finite and all(len(row) for row in finite)
        else None,
        "disconnected": gaps[:20],
    }


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:,.4g}"
