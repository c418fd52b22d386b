"""Which text files the flows of a server write: of two flows that would write the same, the second is refused.

Each flow notes its files in what is kept of it, before it opens them. A note counts while the flow's own file is there,
whether the flow runs or not: it may go on with its files later.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import msgspec

from headwater.errors import FlowError, RunError
from headwater.flow.endpoints import delivery_of
from headwater.flow.flow import Flow
from headwater.flow.identity import sink_identity_of
from headwater.flow.steps import Write
from headwater.io.files import replace_whole

_NOTE = "writes"
_LOCK = "writes.lock"


class _Claim(msgspec.Struct):
    """What a flow notes."""

    flow: str  #: the flow's own file
    files: list[str]


def files_of(flow: Flow) -> list[str]:
    """Return the files that a flow writes and that no other may, since a run replaces or cuts them; no pipe or device."""
    sinks = [step.kind.sink for step in flow.steps.values() if isinstance(step.kind, Write)]
    paths = [sink_identity_of(sink).get("path") for sink in sinks if delivery_of(sink) == "transactional"]
    return [os.path.realpath(path) for path in paths if path is not None]


def check_files(files: Iterable[str], home: Path) -> None:
    """Raise FlowError where another flow of the server, whose homes are beside this one, writes one of the files."""
    owners = {file: name for name, claim in _others(home) for file in claim.files}
    for file in files:
        if file in owners:
            raise FlowError(twice(file, owners[file]))


def take_files(files: list[str], flow: Path, home: Path) -> None:
    """Note that a flow writes these files; raises FlowError where another does."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home.parent / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunError(f"cannot write {home}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two that start at once: one is the second
        check_files(files, home)
        if files:
            replace_whole(home / _NOTE, msgspec.json.encode(_Claim(str(flow), files)))
        else:
            leave_files(home)
    finally:
        os.close(lock)


def leave_files(home: Path) -> None:
    """Let others have the files of a flow that has stopped; it takes them again when it starts."""
    (home / _NOTE).unlink(missing_ok=True)


def twice(file: str, owner: str) -> str:
    """Say why a flow may not write a file."""
    return (
        f"it writes {file}, which flow {owner!r} writes too: each would replace or cut what the other has written. "
        "Give each a file of its own, or bring the streams together with union in one flow"
    )


def _others(home: Path) -> Iterator[tuple[str, _Claim]]:
    """Return what the other flows have noted, by name."""
    for note in sorted(home.parent.glob(f"*/{_NOTE}")):
        try:
            claim = msgspec.json.decode(note.read_bytes(), type=_Claim)
        except (OSError, msgspec.DecodeError):
            continue  # it is made anew when that flow starts
        if note.parent != home and Path(claim.flow).exists():
            yield unquote(note.parent.name), claim
