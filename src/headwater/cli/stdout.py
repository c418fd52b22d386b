"""Standard output, where a flow may write its records: then it is theirs, and what commands say goes elsewhere."""

from __future__ import annotations

import io
import os

from headwater.cli.screen import standard_output
from headwater.errors import RunError, listed
from headwater.flow import Flow
from headwater.flow.places import Place, place_of
from headwater.flow.steps import Write
from headwater.io import Console


def carries_records(flow: Flow, *, as_json: bool) -> bool:
    """Say whether records go to standard output; with `--json`, whose document would be among them, refuse that."""
    sinks = {step.name: step.kind.sink for step in flow.steps.values() if isinstance(step.kind, Write)}
    data = [name for name, sink in sinks.items() if _is_stdout(place_of(sink, writing=True))]
    consoles = [name for name, sink in sinks.items() if isinstance(sink, Console)]
    if as_json and (data or consoles):
        raise RunError(
            f"--json prints one document on standard output and nothing else, but {listed(data + consoles)} writes records "
            "there; write them to a file, with --output or in the flow, or leave --json out"
        )
    return bool(data)


def writes_nowhere_else(flow: Flow) -> bool:
    """Say whether all records of a flow go to standard output."""
    sinks = [step.kind.sink for step in flow.steps.values() if isinstance(step.kind, Write)]
    return all(isinstance(sink, Console) or _is_stdout(place_of(sink, writing=True)) for sink in sinks)


def _is_stdout(place: Place | None) -> bool:
    """Say whether a place is standard output, by whatever name: `-`, `/dev/stdout`, or the file it is redirected to."""
    if place is None:
        return False
    try:
        stat = os.fstat(standard_output().fileno())
    except (OSError, ValueError, io.UnsupportedOperation):  # closed, or no file at all
        return place == Place.of_stream("-", writing=True)
    return place.identity in ((stat.st_dev, stat.st_ino), Place.of_stream("-", writing=True).identity)
