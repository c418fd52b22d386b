"""Records in a file, one batch after the other, until they can go where they belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from zlib import crc32

import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import PREFIX, pack, unpack
from headwater.errors import InputError
from headwater.io.files import explained

_SUM = Struct("<4sI")  #: behind a part: a sign, and the checksum of all before it
_SIGN = b"\xb5HW1"


class DamagedError(InputError):
    """A file does not hold the bytes that were written."""


def batches_in(path: Path, end: int) -> Iterator[Batch]:
    """Read the batches of a file of frames up to a byte."""
    try:
        with path.open("rb") as file:
            while file.tell() < end:
                size, header = PREFIX.unpack(file.read(PREFIX.size))
                body = bytearray(file.read(size))
                if len(body) != size:
                    raise InputError(f"cannot read {path}: its last batch is cut short; was the file changed?")
                yield unpack(np.frombuffer(body, np.uint8), header)
    except OSError as error:
        raise explained(error, path, "read") from error


def packed_part(batches: Iterable[Batch]) -> bytes:
    """Return a part as the content of a file of its own, with a checksum; one without records is empty."""
    form = b"".join(pack(each) for each in batches if each.length)
    return form + _SUM.pack(_SIGN, crc32(form)) if form else b""


def part_in(path: Path) -> list[Batch]:
    """Read a part that has a file of its own; DamagedError where that is not as it was written."""
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise explained(error, path, "read") from error
    if not data:
        return []
    form, behind = data[: -_SUM.size], data[-_SUM.size :]
    if len(behind) != _SUM.size or _SUM.unpack(behind) != (_SIGN, crc32(form)):
        raise DamagedError(f"cannot read {path}: it does not hold what was written; does the disk fail?")
    batches, at = [], 0
    while at < len(form):
        size, header = PREFIX.unpack_from(form, at)
        at += PREFIX.size
        batches.append(unpack(np.frombuffer(bytearray(form[at : at + size]), np.uint8), header))
        at += size
    return batches
