"""Experiment `aels-cases`: the nets and the applications that `aels` places, tables 3 and 4 of Veith et al.

Every net is built and counted; every parameter of every operator is drawn and held against the range that the paper prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwater import net as nets
from headwater.net.arrays import Floats
from headwater_bench.cases import veith
from headwater_bench.experiments.plots import figure
from headwater_bench.experiments.rows import text_table, write_rows

CLASSES = {"regular": 15, "large": 9, "extra-large": 3}
"""How many nets of each class the paper's table 3 lists."""
RANGES = {
    "cpu": (1_000, 10_000, "instructions per record"),
    "compression": (0.1, 1.0, "size out over size in"),
    "memory_bytes": (100, 7_500, "bytes"),
    "source_bytes": (100, 2_500, "bytes"),
    "selectivity": (0.1, 1.0, "records out over records in"),
    "source_hz": (1_000, 10_000, "records/s"),
    "window": (1, 100, "records"),
}
"""Table 4, with the units that its numbers can have: least, most, unit."""
_SMALL = ((10, 10, 10), (10, 100, 100), (10, 500, 500))


def class_of_net(devices: int) -> str:
    """Return what the paper calls a net of so many devices."""
    return "regular" if devices < 10_000 else "large" if devices < 100_000 else "extra-large"


def class_of_application(operators: int) -> str:
    """Return what the paper calls an application of so many operators."""
    return "medium" if operators < 10 else "large" if operators < 50 else "extra-large"


def run(
    quick: bool = False, output: Path | None = None, *, preset: str = "veith-paper", seed: int = 0
) -> dict[str, Any]:
    """Build the nets (`quick`: one of each class) and draw all 130 settings.

    The preset is the one that draws as the paper does; `veith`, the default of `aels`, redraws what does not fit its links.
    """
    sizes = _SMALL if quick else nets.VEITH_SIZES
    topologies = sorted((_net(*size, seed=seed) for size in sizes), key=lambda row: row["devices"])
    by_class = {name: sum(row["class"] == name for row in topologies) for name in CLASSES}
    if not quick and by_class != CLASSES:
        raise AssertionError(f"nets by class: {by_class}; the paper has {CLASSES}")
    reading = veith.preset(preset)
    drawn = [veith.setting(g, k, reading, seed=seed) for g in veith.graphs(seed) for k in range(veith.SETTINGS)]
    values = {name: _values(drawn, name) for name in RANGES}
    answer: dict[str, Any] = {
        "preset": preset,
        "settings": len(drawn),
        "applications": {
            kind: sum(class_of_application(size) == kind for size in veith.SIZES)
            for kind in ("medium", "large", "extra-large")
        },
        "nets_by_class": by_class,
        "table_3": topologies,
        "table_4": [_parameter(name, values[name]) for name in RANGES],
    }
    if output is not None:
        write_rows(answer["table_3"], output / "table3.csv")
        write_rows(answer["table_4"], output / "table4.csv")
        (output / "aels-cases.txt").write_text(table(answer) + "\n")
        _draw_nets(topologies, output / "table3.png")
        _draw_parameters(values, output / "table4.png")
    return answer


def _net(clouds: int, sites: int, devices: int, *, seed: int) -> dict[str, Any]:
    net = nets.cloud_edge(clouds, sites, devices, seed=seed)
    edge = [c.name for c in net.classes if not c.cloud]
    counts = {name: int((net.class_of == k).sum()) for k, name in enumerate(c.name for c in net.classes)}
    if len(net) != clouds + sites * devices or abs(counts[edge[0]] - counts[edge[1]]) > sites:
        raise AssertionError(f"net {clouds}, {sites}, {devices}: {len(net)} devices, {counts}")
    return {
        "class": class_of_net(len(net)),
        "clouds": clouds,
        "sites": sites,
        "devices_per_site": devices,
        "devices": len(net),
        **counts,
    }


def _values(drawn: list[veith.Setting], name: str) -> Floats:
    values = np.concatenate([getattr(setting, name) for setting in drawn])
    return values[values > 0] if name == "window" else values  # 0 is a step without a window


def _parameter(name: str, values: Floats) -> dict[str, Any]:
    least, most, unit = RANGES[name]
    if not least <= values.min() <= values.max() <= most:
        raise AssertionError(
            f"{name}: drawn from {values.min():g} to {values.max():g}; the paper has {least} to {most}"
        )
    return {
        "parameter": name,
        "unit": unit,
        "paper_least": least,
        "paper_most": most,
        "least": float(values.min()),
        "mean": float(values.mean()),
        "most": float(values.max()),
        "values": len(values),
    }


def table(answer: dict[str, Any]) -> str:
    """Tables 3 and 4 in the paper's form."""
    nets_head = ("nets", "clouds", "sites", "devices per site", "devices")
    net_rows = [
        [row[k] for k in ("class", "clouds", "sites", "devices_per_site")] + [f"{row['devices']:,}"]
        for row in answer["table_3"]
    ]
    head = ("parameter", "paper", "drawn", "mean", "unit")
    rows = [
        (
            row["parameter"],
            f"{row['paper_least']:g} to {row['paper_most']:g}",
            f"{row['least']:.4g} to {row['most']:.4g}",
            f"{row['mean']:.4g}",
            row["unit"],
        )
        for row in answer["table_4"]
    ]
    apps = ", ".join(f"{count} {kind}" for kind, count in answer["applications"].items())
    return "\n".join(
        [
            "table 3: nets, each built and counted",
            *text_table(nets_head, net_rows),
            "",
            f"table 4: operators of {answer['settings']} settings ({apps} applications), preset {answer['preset']}",
            *text_table(head, rows),
        ]
    )


def _draw_nets(rows: list[dict[str, Any]], path: Path) -> None:
    colours = dict(zip(CLASSES, ("#9aa5b1", "#1f77b4", "#444444"), strict=True))
    fig, axes = figure(1, 1, 11, 4.2)
    names = [f"{row['clouds']}, {row['sites']}, {row['devices_per_site']}" for row in rows]
    axes[0][0].bar(names, [row["devices"] for row in rows], color=[colours[row["class"]] for row in rows])
    axes[0][0].set(yscale="log", ylabel="devices", xlabel="clouds, sites, devices per site", title="table 3: nets")
    axes[0][0].tick_params(axis="x", rotation=75, labelsize=7)
    for kind, colour in colours.items():
        axes[0][0].bar(0, 0, color=colour, label=kind)  # for the legend alone
    axes[0][0].legend(fontsize=8)
    fig.savefig(path, dpi=110)


def _draw_parameters(values: Mapping[str, Floats], path: Path) -> None:
    fig, axes = figure(2, 4, 13, 5.6)
    for (name, drawn), axis in zip(values.items(), axes.flat, strict=False):
        least, most, unit = RANGES[name]
        axis.hist(drawn, bins=20, color="#1f77b4")
        for limit in (least, most):
            axis.axvline(limit, color="#d62728", linestyle=":", linewidth=1.2)
        axis.set(title=name, xlabel=unit, ylabel="drawn")
    axes.flat[-1].axis("off")
    fig.suptitle("table 4: what operators are drawn from, the paper's limits dotted")
    fig.savefig(path, dpi=110)
