"""What of a part's checkpoint travels when its flow is cut anew, and what stays at its site.

The last checkpoint goes to whoever cuts, with what waits in the logs of bridges, and comes back as another checkpoint. The
notes of sources and sinks stay: they are of files and connections of the site.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from headwater.deploy.ahead import PassingDisk, marks, with_marks
from headwater.deploy.bridge.buffer import LogBuffer, NumberedFrame
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.io.files import sync

_BRIDGE = "bridge"  #: the folder in a sink's notes that makes it the end of a bridge
_WAITING = "waiting"  #: the folder, among what travels, of what waits at each bridge
MOST_BYTES = 5 * 10**8  #: of one part: it goes as one message, which all who have to do with it have in memory
_AT_ONCE = 16  #: files that a disk is asked to have safe: it has all of them in about the time of one


class Waiting(msgspec.Struct, array_like=True):
    """What is kept of a stream that leaves a part: messages with their numbers, from `first` up to `end`."""

    first: int = 0
    end: int = 0
    messages: list[tuple[int, bytes]] = []


_decoder = msgspec.msgpack.Decoder(Waiting)


def packed(checkpoint: Path, known: Collection[str] = ()) -> dict[str, bytes]:
    """Return what travels of a part at which nothing is at work, by its path within a checkpoint's folder.

    That is the last checkpoint, with those that it builds on, and of each stream that leaves what some site may not have.
    Logs are opened as they are when the part goes on, so that it still can. State that is `known` where it will be needed is
    left out, and not even read: records wait. RunError for more than can travel: the flow then goes on as it was.
    """
    store = Store(checkpoint, PassingDisk())
    latest = store.latest(marks(known))
    if latest is None:
        return {}
    paths = store.files(latest.number)
    short = with_marks(latest)
    check_size(sum(path.stat().st_size for path in paths) if short is None else len(short))
    files = {path.name: path.read_bytes() for path in paths} if short is None else {paths[0].name: short}
    for folder in checkpoint.glob(f"sinks/*/{_BRIDGE}"):
        outlet = unquote(folder.parent.name)
        if outlet in latest.content["steps"]:  # else nothing counts of what was written since that checkpoint
            files[f"{_WAITING}/{_file(outlet)}"] = _waiting(folder, latest.number)
    check_size(sum(map(len, files.values())))
    return files


def check_size(size: int, whose: str = "the part") -> None:
    """Raise RunError for more bytes than can travel while a part stands still."""
    if size > MOST_BYTES:
        raise RunError(
            f"what has changed of the state of {whose}, and what waits at its bridges, have {size:,} bytes, of which "
            f"{MOST_BYTES:,} can travel: move fewer steps at once, or wait until less waits"
        )


def _waiting(log: Path, number: int) -> bytes:
    """Return what a log keeps up to a checkpoint."""
    buffer = LogBuffer(log, after=number, disk=PassingDisk())
    try:
        frames, _ = buffer.read(buffer.released, buffer.part_end, 2**62)
        messages = [(each.number, bytes(each.frame)) for each in frames]
        return msgspec.msgpack.encode(Waiting(buffer.released, buffer.part_end, messages))
    finally:
        buffer.close()


def waiting(folder: Path, outlet: str) -> Waiting:
    """Return what waited where a stream leaves, of a part that was packed and unpacked there."""
    try:
        return _decoder.decode((folder / _WAITING / _file(outlet)).read_bytes())
    except FileNotFoundError:
        return Waiting()
    except msgspec.DecodeError as error:
        raise RunError(f"what waited at the bridge of '{outlet}' came in a form that is not known: {error}") from None


def note_waiting(folder: Path, outlet: str, backlog: Waiting) -> None:
    """Have a part that goes on from a checkpoint in a folder go on with what waited where a stream leaves."""
    (folder / _WAITING).mkdir(parents=True, exist_ok=True)
    (folder / _WAITING / _file(outlet)).write_bytes(msgspec.msgpack.encode(backlog))


def made_in(folder: Path) -> dict[str, bytes]:
    """Return the checkpoint that was just made in a folder, with what waits, by names there; nothing where none was."""
    paths = [*folder.glob("*.checkpoint"), *folder.glob(f"{_WAITING}/*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def lay_bridges(checkpoint: Path) -> None:
    """Make the logs of bridges, of a part that was unpacked to go on, from what waits; see `make_safe`."""
    number = max((int(path.stem) for path in checkpoint.glob("*.checkpoint")), default=-1)
    for path in (checkpoint / _WAITING).glob("*"):
        backlog = waiting(checkpoint, unquote(path.name))
        log = checkpoint / "sinks" / path.name / _BRIDGE
        log.mkdir(parents=True)
        messages = [NumberedFrame(*each) for each in backlog.messages]
        LogBuffer.laid(log, backlog.first, backlog.end, messages, number, PassingDisk())
    shutil.rmtree(checkpoint / _WAITING, ignore_errors=True)


def unpacked(files: Mapping[str, bytes], folder: Path) -> None:
    """Write what has travelled into a folder; see `make_safe`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"'{name}' is not within the folder of a checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def make_safe(folder: Path) -> None:
    """Have all that is in a folder safe on disk, with its name; all at once, since records wait for it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(sync, [folder.parent, folder, *folder.rglob("*")]))


def bring_notes(old: Path, new: Path) -> None:
    """Copy the notes of sources and sinks that stay at a site from the folder of one checkpoint to that of another."""
    for kind in ("sinks", "sources"):
        for path in (old / kind).glob("*") if (old / kind).is_dir() else ():
            to = new / kind / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                shutil.copy2(path, to)
            elif not (path / _BRIDGE).is_dir():
                shutil.copytree(path, to, dirs_exist_ok=True)


def _file(outlet: str) -> str:
    return quote(outlet, safe=" ")
