"""`headwater run riot:train --on spark`: TRAIN on a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.cli.plugins import Job
from headwater.cli.screen import console, print_json, print_report, progress
from headwater.errors import RunError
from headwater.metrics import Report

_ABOUT = (
    "riot:train on Spark: jobs of the driver's session on a table (--input); no stages of ours\n"
    "  read     the features of all rows, as doubles; rows that lack one are left out\n"
    "  mlt      the engine's regression, from sums that tasks make of their rows\n"
    "  dtt      the engine's tree, on quartiles of the last feature, grown in the driver\n"
    "  (with --trainer mllib: LinearRegression and DecisionTreeClassifier, whose models are others, see\n"
    "   docs/train-and-predict.md; no annotate.csv either way)\n"
    "  publish  both models, measured beside the revision before, as the next revision in a folder (--output)"
)
_EXPECTED = (
    "riot:train on Spark learns from a table: give it as --input, a folder of Parquet files, as ETL writes it, "
    "or a CSV file of such rows, and as --output a folder for the models"
)


def trained_on_spark(
    inputs: list[str] | None, output: Path | None, master: str | None, others: Mapping[str, Any]
) -> Report:
    """Train on the table that a user names, and keep the models in the folder that they name."""
    options = [name for name, value in others.items() if value is not None and name != "trainer"]
    if options:
        raise RunError(
            f"--{options[0]} means nothing with riot:train on Spark: it trains once, on the table that is there"
        )
    place = os.environ.get("HEADWATER_RIOT_MODELS")
    folder = output or (Path(place) if place else None)
    if not inputs or len(inputs) > 1 or folder is None:
        raise RunError(_EXPECTED)
    from headwater.spark.session import session
    from headwater_bench.mllib.table import check_table

    table = Path(inputs[0].removeprefix("triggers="))
    check_table(table)
    with progress("starting Spark"):
        session(master)
    from headwater_bench.mllib.run import run
    from headwater_bench.mllib.train import EXACT

    with progress("training"):
        return run(table, folder, trainer=others.get("trainer") or EXACT)


def show_training(report: Report, as_json: bool) -> None:
    """Show what was trained, and how good it is."""
    if as_json:
        print_json(report.to_json())
        return
    print_report(report)
    for model in report.extra["models"]:
        facts = {name: value for name, value in model.items() if name not in ("file", "kind", "revision")}
        text = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in facts.items())
        console.print(f"{model['file']}: {text}", markup=False)


TRAIN = Job(_ABOUT, trained_on_spark, show_training)
"""`riot:train` on Spark."""
