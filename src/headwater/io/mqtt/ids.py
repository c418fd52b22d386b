"""Messages with an id that is the same whenever they are sent, so that receivers can tell one that comes again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from headwater.data.column import Text
from headwater.io.mqtt.packets import number, text

Where = Literal["property", "payload", "topic"]
NAME = "headwater-id"  #: of the property, and of the member of a JSON object
_USER_PROPERTY = b"\x26"


def ids_of(key: str, rows: Iterable[int]) -> list[bytes]:
    """Return the ids of records that are known by a key and their number.

    >>> ids_of("a7f3-12", [0, 5])
    [b'a7f3-12-0', b'a7f3-12-5']
    """
    before = f"{key}-".encode()
    return [before + str(row).encode() for row in rows]


def as_properties(ids: list[bytes]) -> Text:
    """Return what stands in MQTT 5's messages before the payload: their properties."""
    name = _USER_PROPERTY + text(NAME)
    return Text.of_bytes([number(len(name) + 2 + len(each)) + name + len(each).to_bytes(2) + each for each in ids])


def in_payloads(payloads: Text, ids: list[bytes]) -> Text:
    """Return JSON objects with one member more.

    >>> in_payloads(Text.of(['{"n":1}', "{}"]), [b"a-0", b"a-1"]).tolist()
    ['{"n":1,"headwater-id":"a-0"}', '{"headwater-id":"a-1"}']
    """
    member = f'"{NAME}":"'.encode()
    texts = []
    for start, stop, each in zip(payloads.offsets[:-1].tolist(), payloads.offsets[1:].tolist(), ids, strict=True):
        inside = payloads.data[start : stop - 1].tobytes()
        texts.append(inside + (b"," if len(inside) > 1 else b"") + member + each + b'"}')
    return Text.of_bytes(texts)


def in_topics(topics: Text, ids: list[bytes]) -> Text:
    """Return topics with one level more; one topic may be that of all.

    >>> in_topics(Text.of(["levels"]), [b"a-0", b"a-1"]).tolist()
    ['levels/a-0', 'levels/a-1']
    """
    names = [each.encode() for each in topics.tolist()]
    if len(names) == 1 != len(ids):
        names = names * len(ids)
    return Text.of_bytes([name + b"/" + each for name, each in zip(names, ids, strict=True)])
