"""Records in a file, one batch after the other, until they can go where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import PREFIX, unpack
from headwater.errors import InputError
from headwater.io.files import explained


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
