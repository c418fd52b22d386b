"""Topics that are made of records' columns, and which of them a broker takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.jit import kernel
from headwater.data.schema import Schema
from headwater.data.text_format import TextFormat
from headwater.errors import FlowError
from headwater.flow.endpoints import Refused

_LONGEST = 65_535  # bytes: a length has two
#: what a topic to publish to must not hold, and what lets a broker drop the connection: control and non-characters
_UNFIT = re.compile("[+#\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


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
    >>> topic.of(Batch.of({"sensor": ["a", "b"]}, schema))
    (Text(['city/a/out', 'city/b/out']), {})
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
        if len(plain.encode()) > _LONGEST:
            raise FlowError(f"topic {_short(plain)} has {len(plain.encode()):,} bytes; at most {_LONGEST:,} fit")
        plains = [piece.plain.encode() for piece in self.pieces]
        self._format = TextFormat(plains if self.pieces[-1].column is None else [*plains, b""], escape=False)
        self._same = Text.of([plain])

    def of(self, batch: Batch) -> tuple[Text, Refused]:
        """Return each record's topic, or one where all have the same; and the records that have none, with the reason."""
        if not self.columns:
            return self._same, {}
        if not batch.length:
            return Text.of([]), {}
        columns = [_texts(batch[name]) for name in self.columns]
        topics = Text(*self._format.format(columns))
        lengths = topics.lengths()
        doubtful = (lengths == 0) | (lengths > _LONGEST)
        if not self.pieces[0].plain:
            doubtful |= topics.data[np.minimum(topics.offsets[:-1], len(topics.data) - 1)] == ord("$")
        for piece, column in zip(self.pieces, columns, strict=False):
            doubtful |= doubtful_levels(column.data, column.offsets, piece.many)
        for name in self.columns:
            valid = parts(batch[name])[1]
            if valid is not None:
                doubtful |= ~valid
        return topics, self._refuse(batch, np.flatnonzero(doubtful))

    def _refuse(self, batch: Batch, rows: Array) -> Refused:
        """Look with care at records whose topic may be none."""
        refusals: Refused = {}
        values = {name: batch[name][rows].tolist() for name in self.columns}
        for place, row in enumerate(rows.tolist()):
            try:
                self._of({name: column[place] for name, column in values.items()})
            except ValueError as error:
                refusals[row] = str(error)
        return refusals

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


def _texts(column: Column) -> Text:
    """Return values as they stand in a topic; what is missing is empty."""
    if isinstance(column, Text):
        return column
    return Text.of(["" if value is None else str(value) for value in column.tolist()])


@kernel
def doubtful_levels(data: NDArray[np.uint8], offsets: NDArray[np.int32], many: bool) -> NDArray[np.bool_]:
    """Tell which texts may hold what a level of a topic must not: a sign of its own, or the first byte of an unfit one."""
    doubtful = np.zeros(len(offsets) - 1, np.bool_)
    for i in range(len(doubtful)):
        for at in range(offsets[i], offsets[i + 1]):
            byte = data[at]
            if (
                byte < 0x20
                or byte == 0x7F
                or byte == 0xC2
                or byte == 0xEF
                or byte == 0x2B
                or byte == 0x23
                or (byte == 0x2F and not many)
            ):
                doubtful[i] = True
    return doubtful


def checked_filter(topic: str) -> None:
    """Raise FlowError where a topic to read from is none that a broker knows how to match."""
    if "{" in topic:
        raise FlowError(f"topic {topic!r} to read from holds a column; did you mean the wildcard '+'?")
    levels = plain_filter(topic).split("/")
    for place, level in enumerate(levels):
        if ("+" in level and level != "+") or ("#" in level and (level != "#" or place < len(levels) - 1)):
            raise FlowError(
                f"topic {topic!r} to read from: '+' is a whole level, as in 'a/+/b', and '#' the whole last one, as in 'a/#'"
            )
    if _CONTROL.search(topic):
        raise FlowError(f"topic {topic!r} holds a control character, which brokers do not take")
    if len(topic.encode()) > _LONGEST:
        raise FlowError(f"topic {_short(topic)} has {len(topic.encode()):,} bytes; at most {_LONGEST:,} fit")


def plain_filter(topic: str) -> str:
    """Return what a shared subscription shares.

    >>> plain_filter("$share/gateways/city/+"), plain_filter("city/+")
    ('city/+', 'city/+')
    """
    if not topic.startswith("$share/"):
        return topic
    _, group, *levels = topic.split("/", 2)
    if not group or "+" in group or "#" in group or not levels or not levels[0]:
        raise FlowError(f"topic {topic!r}: a shared subscription is '$share/group/topic'")
    return levels[0]


def matches(filter_: str, topic: str) -> bool:
    """Tell whether a topic is one of those that were asked for.

    >>> matches("city/+/in", "city/a/in"), matches("city/#", "city"), matches("#", "$SYS/load"), matches("a/+", "a/b/c")
    (True, True, False, False)
    """
    levels, topic_levels = plain_filter(filter_).split("/"), topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(topic_levels) or level not in ("+", topic_levels[place]):
            return False
    return len(levels) == len(topic_levels)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:39]!r}…"


def _pieces(text: str) -> list[Piece]:
    try:
        fields = list(Formatter().parse(text))
    except ValueError as error:
        raise FlowError(f"cannot read topic {text!r}: {error}; a column is written {{name}}") from None
    for _, _, form, conversion in fields:
        if form not in (None, "", "path") or conversion:
            suffix = form or f"!{conversion}"
            raise FlowError(
                f"cannot read topic {text!r}: a column is written {{name}} or {{name:path}}; got {suffix!r}"
            )
    return [Piece(plain, name, form == "path") for plain, name, form, _ in fields]
