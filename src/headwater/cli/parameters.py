"""What many commands take: a flow by its reference, and whether JSON is wanted."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.screen import want_json

FLOW = Annotated[str, typer.Argument(help="module:name, path/to/flow.py[:name], or a bundled flow such as riot:etl")]
JSON = Annotated[
    bool,
    typer.Option("--json", callback=want_json, is_eager=True, help="print one JSON document and nothing else"),
]
