"""A query over a running stream or a file: records are looked at, and a process of its own asks them the query.

So a query that is wrong, large or slow costs the flow no more than the look.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import RunError, listed, suggestion
from headwater.io.file_format import ENDINGS
from headwater.serve.backend import Backend
from headwater.serve.messages import Order, Trial
from headwater.serve.trials import Trials

#: what a stream is called in a query whose step, or file, has a name that is no word of the language
STREAM = "stream"
_ANSWER_S = 60.0
_trials = Trials()


def stream_name(step: str) -> str:
    """Return what the records of a step are called in a query.

    >>> stream_name("sound"), stream_name("ten seconds")
    ('sound', 'stream')
    """
    return step if re.fullmatch(r"[A-Za-z_]\w*", step, re.ASCII) else STREAM


class UnknownStepError(RunError):
    """A flow has no step of a name."""


def steps_of(flows: Backend, name: str, step: str) -> dict[str, Any]:
    """Return the steps of a flow by name; raises UnknownStepError where the one that is wanted is not among them."""
    steps = {each["name"]: each for each in msgspec.json.decode(flows.graph_of(name))["steps"]}
    if step not in steps:
        raise UnknownStepError(
            f"flow {name!r} has no step {step!r}; steps are {listed(list(steps))}{suggestion(step, list(steps))}"
        )
    return steps


def query_stream(flows: Backend, name: str, step: str, text: str, limit: int) -> bytes:
    """Return what a query finds in the next records that a step gives out, as JSON; or where its text is wrong.

    Nobody looks at records where the limit is 0: then the text alone is looked at.
    """
    outputs = steps_of(flows, name, step)[step]["outputs"]
    if not outputs:
        raise RunError(f"step {step!r} is a sink, which gives out nothing to ask about; ask the step before it")
    records = msgspec.json.decode(flows.show(name, Order("records", step, limit)))["out"] if limit else []
    return _trials.answer(Trial(text, stream_name(step), next(iter(outputs.values())), records), _ANSWER_S)


def query_file(flows: Backend, file: str, text: str, limit: int) -> bytes:
    """Return what a query finds in a file beside the flows, as JSON: so many matches at most; or where its text is wrong."""
    folder = Path(flows.describe()["folder"])
    names = [each["name"] for each in files_in(folder)]
    if file not in names:  # whatever is elsewhere on this machine is nobody's business
        raise RunError(f"there is no file {file!r} of records in {folder}{suggestion(file, names)}")
    trial = Trial(text, stream_name(Path(file).stem), file=str(folder / file), most=limit)
    return _trials.answer(trial, _ANSWER_S)


def files_in(folder: Path) -> list[dict[str, Any]]:
    """Return the files of records in a folder, each with its name and size."""
    try:
        entries = [entry for entry in os.scandir(folder) if _is_data(entry)]
        return [{"name": entry.name, "bytes": entry.stat().st_size} for entry in sorted(entries, key=lambda e: e.name)]
    except OSError as error:
        raise RunError(f"cannot look into {folder}: {error.strerror}") from None


def _is_data(entry: os.DirEntry[str]) -> bool:
    return (
        entry.name.endswith(ENDINGS) and not entry.name.startswith(".") and entry.name.isprintable() and entry.is_file()
    )
