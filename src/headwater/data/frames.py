"""Frames: a batch as bytes and back, for queues on disk and links between sites.

A frame is two lengths, a MessagePack header and the columns' memory, each piece starting at a multiple of 8
bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.codec import decode, encode_all
from headwater.data.column import Array, Column, Nullable, Text, parts
from headwater.errors import InputError

VERSION = 2
PREFIX = Struct("<II")  #: bytes that follow the prefix, and how many of them are the header

_pack_header = msgspec.msgpack.Encoder().encode
_unpack_header = msgspec.msgpack.Decoder().decode
_PADDING = np.zeros(7, np.uint8)


def pack(batch: Batch) -> bytes:
    """Return the batch as one frame: its columns, stamps and watermark."""
    return b"".join([piece.data for piece in pieces_of(batch)])


def pieces_of(batch: Batch) -> list[Array]:
    """Return the frame of a batch in pieces, bytes each, of which most are the memory of its columns itself."""
    pieces = [_bytes(batch.stamps)]
    columns = [[name, *_pack_column(name, column, pieces)] for name, column in batch.columns.items()]
    header = np.frombuffer(_pack_header([VERSION, batch.length, batch.watermark, columns]), np.uint8)
    padded = [part for piece in (header, *pieces) for part in (piece, _PADDING[: -len(piece) % 8])]
    body = sum(map(len, padded))
    if body >= 2**32:
        raise InputError(f"a batch of {body:,} bytes does not fit a frame, which holds 4 GB; use smaller batches")
    return [np.frombuffer(PREFIX.pack(body, len(header)), np.uint8), *padded]


def unpack(body: Array, header_length: int) -> Batch:
    """Return the batch of a frame without its prefix; its columns share the frame's memory."""
    version, length, watermark, forms = _unpack_header(body[:header_length].data)
    if version != VERSION:
        raise InputError(f"a stored batch has version {version}, this program reads {VERSION}")
    pieces = _Pieces(body, header_length + -header_length % 8)
    stamps = pieces.take(16 * length).view(np.int64).reshape(length, 2)
    columns = {name: _unpack_column(pieces, length, *form) for name, *form in forms}
    return Batch(columns, length, stamps, watermark)


def unpack_frame(frame: bytes) -> Batch:
    """Return the batch of a whole frame.

    >>> from headwater.data.schema import Schema
    >>> batch = Batch.of({"id": ["a", "b"]}, Schema.of({"id": str}))
    >>> unpack_frame(pack(batch)).rows()
    [{'id': 'a'}, {'id': 'b'}]
    """
    _, header_length = PREFIX.unpack_from(frame)
    return unpack(np.frombuffer(bytearray(memoryview(frame)[PREFIX.size :]), np.uint8), header_length)


def _pack_column(name: str, column: Column, pieces: list[Array]) -> tuple[str, int, bool]:
    """Add a column's memory to the pieces; return its form, its values' bytes, and if it has a mask."""
    values, valid = parts(column)
    if isinstance(values, Text):
        start, stop = int(values.offsets[0]), int(values.offsets[-1])
        pieces += [_bytes(values.offsets - np.int32(start)), _bytes(values.data[start:stop])]
        form = "text"
    elif values.dtype.kind == "O":
        try:
            pieces.append(np.frombuffer(encode_all(values.tolist()), np.uint8))
        except TypeError as error:
            raise InputError(f"column {name!r}: {error}") from None
        form = "any"
    else:
        pieces.append(_bytes(values))
        form = values.dtype.str
    size = len(pieces[-1])
    if valid is not None:
        pieces.append(_bytes(valid))
    return form, size, valid is not None


def _unpack_column(pieces: _Pieces, length: int, form: str, size: int, masked: bool) -> Column:
    values: Any
    if form == "text":
        offsets = pieces.take(4 * (length + 1)).view(np.int32)
        values = Text(pieces.take(size), offsets)
    elif form == "any":
        values = np.fromiter(decode(pieces.take(size).data), object, length)
    else:
        values = pieces.take(size).view(np.dtype(form))
    return Nullable(values, pieces.take(length).view(np.bool_)) if masked else values


class _Pieces:
    """Walks through a frame's memory piece by piece."""

    def __init__(self, body: Array, at: int) -> None:
        self._body, self._at = body, at

    def take(self, size: int) -> Array:
        piece = self._body[self._at : self._at + size]
        self._at += size + -size % 8
        return piece


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
