"""Topics that are made of records' columns, and which of them a broker takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import Refused

_LONGEST = 65_535  # bytes: a length has two
#: what a topic to publish to must not hold, and what lets a broker drop the connection: control and non-characters
_UNFIT = re.compile("[+#\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Piece:
    """A piece of plain text and the column that follows it, whose values may be `many` levels or are one."""

    plain: str
    column: str | None
    many: bool = False


class Topic:
    """A topic with columns in it, such as `city/{sensor}/out`; `{sensor:path}` may be several levels.

    >>> schema = Schema.of({"sensor": str})
    >>> topic = Topic("city/{sensor}/out", schema)
    >>> topic.of(Batch.of({"sensor": ["a", "b/c"]}, schema))[0]
    ['city/a/out', '']
    """

    def __init__(self, text: str, schema: Schema) -> None:
        self.pieces = _pieces(text)
        self.columns = tuple(piece.column for piece in self.pieces if piece.column is not None)
        for name in self.columns:
            schema.type_of(name, what=f"topic {text!r}")
        plain = "".join(piece.plain for piece in self.pieces)
        if "+" in plain or "#" in plain:
            raise FlowError(f"topic {text!r} to publish to holds a wildcard; write a column as {{name}}")
        if _UNFIT.search(plain):
            raise FlowError(f"topic {text!r} holds a control character, which brokers do not take")

    def of(self, batch: Batch) -> tuple[list[str], Refused]:
        """Return each record's topic, and those records for which there is none, with the reason."""
        columns = {name: batch[name].tolist() for name in self.columns}
        refused: Refused = {}
        topics = []
        for row in range(batch.length):
            try:
                topics.append(self._of({name: column[row] for name, column in columns.items()}))
            except ValueError as error:
                refused[row] = str(error)
                topics.append("")
        return topics, refused

    def _of(self, values: dict[str, Any]) -> str:
        """Return the topic of one record; raises ValueError where brokers would not take it."""
        texts = []
        for piece in self.pieces:
            texts += [piece.plain] if piece.column is None else [piece.plain, _level(piece, values[piece.column])]
        topic = "".join(texts)
        if topic.startswith("$") and not self.pieces[0].plain:
            raise ValueError(f"topic {_short(topic)} begins with '$', which is the broker's own")
        if len(topic) > _LONGEST // 4 and len(topic.encode()) > _LONGEST:
            raise ValueError(f"topic {_short(topic)} has {len(topic.encode()):,} bytes; at most {_LONGEST:,} fit")
        if not topic:
            raise ValueError("the record's columns make an empty topic")
        return topic


def _level(piece: Piece, value: Any) -> str:
    if value is None:
        raise ValueError(f"the record has no {piece.column!r}, which is part of its topic")
    text = str(value)
    if unfit := _UNFIT.search(text):
        what = "a wildcard" if unfit[0] in "+#" else "a character that brokers do not take"
        raise ValueError(f"column {piece.column!r} is part of the topic, and {_short(text)} holds {what}: {unfit[0]!r}")
    if "/" in text and not piece.many:
        raise ValueError(
            f"column {piece.column!r} is one level of the topic, and {_short(text)} holds '/'; "
            f"write {{{piece.column}:path}} to let it be several"
        )
    return text


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:39]!r}…"


def _pieces(text: str) -> list[Piece]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise FlowError(f"cannot read topic {text!r}: {error}; a column is written {{name}}") from None
    for _, _, form, conversion in parsed:
        if form not in (None, "", "path") or conversion:
            given = form or f"!{conversion}"
            raise FlowError(f"cannot read topic {text!r}: a column is written {{name}} or {{name:path}}; got {given!r}")
    return [Piece(plain, name, form == "path") for plain, name, form, _ in parsed]
