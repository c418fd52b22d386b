"""The options of a run on Spark, as `run` and `spark submit` take them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.cli.address import address_of
from headwater.data.timestamps import micros_of_text
from headwater.errors import RunError

DURATION = Annotated[str | None, typer.Option("--for", help="stop reading after this long, such as 30s")]
INPUT = Annotated[
    list[str] | None,
    typer.Option(help="read FILE, on Spark also a URL, instead of the source (NAME=FILE if several)"),
]
OUTPUT = Annotated[str | None, typer.Option(help="write each sink to a file in this folder, on Spark also at this URL")]
CONF = Annotated[
    list[str] | None, typer.Option("--conf", "-c", help="a setting of Spark's, NAME=VALUE; as often as need be")
]
MEANING = Annotated[
    str | None,
    typer.Option(
        help="on Spark: spark has its own operators run expressions and windows next to a source that it reads, by "
        "its own rules [default: headwater's, exactly]"
    ),
]
TARGET = Annotated[
    str | None, typer.Option(help="on Spark: about how long a micro-batch takes when much waits, such as 2s")
]
AVAILABLE_NOW = Annotated[bool, typer.Option("--available-now", help="on Spark: take what sources have now, and end")]
BUCKETS = Annotated[
    int | None,
    typer.Option(
        help="on Spark: into how many parts keys are spread [default: as many as spark.sql.shuffle.partitions]"
    ),
]
BACKFILL = Annotated[
    list[str] | None,
    typer.Option(
        help="on Spark: first all of TABLE, a path, URL or name, as if it had streamed (NAME=TABLE if several)"
    ),
]
UNTIL = Annotated[str | None, typer.Option(help="with --backfill: up to this moment, such as 2026-11-16T08:00:00Z")]
ORDER_BY = Annotated[
    str | None, typer.Option(help="with --backfill: the table's column of time [default: that of event time]")
]
HISTORY_ONLY = Annotated[bool, typer.Option("--history-only", help="with --backfill: end before the stream goes on")]
PROMETHEUS = Annotated[
    str | None, typer.Option(metavar="[HOST:]PORT", help="serve metrics on this port [default: of 127.0.0.1 alone]")
]


def check_history(backfill: list[str] | None, options: dict[str, Any]) -> None:
    """Refuse what means nothing without history."""
    names = [name for name, value in options.items() if value]
    if names and not backfill:
        raise RunError(f"--{names[0]} is about history, and means nothing without --backfill TABLE")
    if (until := options["until"]) is not None:
        try:
            micros_of_text(until)
        except ValueError:
            raise RunError(f"--until is a moment such as 2026-11-16T08:00:00Z; got {until!r}") from None


def parse_metrics_address(text: str) -> tuple[int, str]:
    """Read `--prometheus`: the port, and the address that it is of."""
    if text.isdecimal():
        return int(text), "127.0.0.1"
    host, port = address_of("--prometheus", text, "9100 or 0.0.0.0:9100")
    return port, host


def parse_settings(texts: list[str]) -> dict[str, str]:
    """Read `-c NAME=VALUE`; of a name that is given twice, the last one counts."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise RunError(f"-c takes a setting of Spark's, such as spark.driver.memory=4g; got {text!r}")
        settings[name] = value.strip()
    return settings
