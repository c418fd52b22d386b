"""What a checkpoint begins with that was taken over from another runner, beside Spark's own files.

Spark keeps state in a form of its own, which only Spark writes: a bucket without any there begins with its seed. What had
not come to the sinks yet is written by the first run, as a part of its own, before it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.errors import RunError
from headwater.flow.ranges import Offset
from headwater.io.files import replace_whole
from headwater.io.transactions.frames import batches_in

_CHECKSUM = 4  #: bytes of it


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a checkpoint says of what was taken over."""

    origin: str  #: the checkpoint that it was
    offsets: Mapping[str, Offset]  #: where each source is read on
    first: int  #: the part of sinks that the first micro-batch is
    after: int  #: the part behind which sinks go on, until a micro-batch has begun
    waiting: tuple[str, ...] = ()  #: sinks that have yet to be given what waits for them, as the part right before
    new_sinks: tuple[
        str, ...
    ] = ()  #: which the flow did not have then: all that they get is behind what was taken over
    #: how far event time had come before each sink that wants to know, by the number of the stage that sends
    times: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        origin: Path,
        offsets: Mapping[str, Offset],
        part: int,
        waiting: Iterable[str],
        new_sinks: Iterable[str] = (),
        times: Mapping[str, Mapping[str, int]] | None = None,
    ) -> TakenOver:
        """Describe what begins behind a part of sinks."""
        sinks = tuple(waiting)
        return cls(str(origin), offsets, part + (2 if sinks else 1), part, sinks, tuple(new_sinks), times or {})

    def watermarks_of(self, sink: str) -> dict[int, int]:
        """Return how far event time had come before a sink, by stage."""
        return {int(stage): at for stage, at in self.times.get(sink, {}).items()}


def write_seeds(folder: Path, states: Mapping[int, bytes], waiting: Mapping[str, list[Batch]]) -> None:
    """Write the state of each bucket, and what waits for each sink."""
    for bucket, state in states.items():
        replace_whole(_state(folder, bucket), crc32(state).to_bytes(_CHECKSUM, "little") + state)
    for sink, batches in waiting.items():
        replace_whole(_waiting(folder, sink), b"".join(map(pack, batches)))


def seed_of(folder: Path, bucket: int) -> bytes:
    """Return the state that a bucket begins with, in any process that sees the folder."""
    path = _state(folder, bucket)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(
            f"cannot read {path}, with which a checkpoint begins that was taken over: {error.strerror}; "
            "was it copied in part, or is its folder not seen by all executors?"
        ) from error
    state = data[_CHECKSUM:]
    if crc32(state) != int.from_bytes(data[:_CHECKSUM], "little"):
        raise RunError(
            f"the checksum of {path} is wrong: some of its bytes are not what was written; move it once more"
        )
    return state


def waiting_in(folder: Path, takeover: TakenOver) -> dict[str, list[Batch]]:
    """Return what waits for sinks."""
    paths: dict[str, Any] = {sink: _waiting(folder, sink) for sink in takeover.waiting}
    return {sink: list(batches_in(path, path.stat().st_size)) for sink, path in paths.items()}


def _state(folder: Path, bucket: int) -> Path:
    return folder / f"{bucket}.state"


def _waiting(folder: Path, sink: str) -> Path:
    return folder / f"{quote(sink, safe=' ')}.rows"
