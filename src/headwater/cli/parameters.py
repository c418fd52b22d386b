"""What many commands take: a flow by its reference, whether JSON is wanted, and how many lanes there are."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headwater.cli.screen import want_json
from headwater.errors import RunError

FLOW = Annotated[str, typer.Argument(help="module:name, path/to/flow.py[:name], or a bundled flow such as riot:etl")]
JSON = Annotated[
    bool,
    typer.Option("--json", callback=want_json, is_eager=True, help="print one JSON document and nothing else"),
]


def parse_lanes(text: str | None) -> int | Literal["auto"] | None:
    """Read `--lanes`."""
    if text is None or text == "auto":
        return None if text is None else "auto"
    if not text.isdecimal() or int(text) < 1:
        raise RunError(f"--lanes is 'auto' or a number of processes above 0; got {text!r}")
    return int(text)
