"""What tells a source or a sink from another of its kind: a checkpoint belongs to what was read and written with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from headwater.io.csv import Csv
from headwater.io.files import explained
from headwater.io.generator import Generate, Replay
from headwater.io.jsonl import JsonLines
from headwater.io.kafka import Kafka
from headwater.io.memory import Items
from headwater.io.mqtt import Mqtt
from headwater.io.parquet import Parquet
from headwater.io.sqlite import Sqlite
from headwater_bench.riot.sources import MessageFile, Messages

Identity = dict[str, Any]  #: plain values, and no secrets: it is written down

_CHUNK = 2**20


def of_source(source: Any) -> Identity:
    """Return what a source is. A source of one's own may say it in an attribute `identity`, of plain values."""
    return {"kind": type(source).__name__, **_of_source(source)}


def _of_source(source: Any) -> Identity:
    match source:
        case JsonLines() | Csv() | MessageFile():  # how much of it was read, and what that was, is in its offsets
            return _place(source.path)
        case Parquet():  # written once, with a summary at its end
            return {**_place(source.path), **_content(Path(source.path), last=2**16)}
        case Sqlite():
            return {**_place(source.path), "table": source.table, "query": source.query}
        case Kafka():
            return {"topic": source.topic, "servers": sorted(source.servers.split(","))}
        case Mqtt():  # a broker may move, and what it sent is in the log
            return {"topic": source.topic}
        case Messages():
            return {"data set": source.name, "seed": source.seed}
        case Items():
            return {"records": len(source.items), "content": _of_items(source, len(source.items))}
        case Replay() if isinstance(source.records, JsonLines | Csv | MessageFile):
            # which record has which number depends on all of them
            return {"of": of_source(source.records), **_content(Path(source.records.path))}
        case Replay():
            return {"of": of_source(source.records)}
    own = getattr(source.make if isinstance(source, Generate) else source, "identity", None)
    return {} if own is None else {"identity": own}


def of_sink(sink: Any) -> Identity:
    """Return what a sink is, where the checkpoint says how much of it is good: only there another would do harm."""
    return {"kind": type(sink).__name__, **_place(sink.path)} if isinstance(sink, JsonLines | Csv) else {}


def differs(source: Any, before: Identity, now: Identity) -> str:
    """Say how a source is another than before; nothing when it is the same one, or the same and more of it."""
    if before["kind"] != now["kind"]:
        return f"it read {_told(before)} then, and is given {_told(now)} now"
    if isinstance(source, Items):
        count = before["records"]
        same = now["records"] >= count and _of_items(source, count) == before["content"]
        return (
            ""
            if same
            else f"the {count:,} records that it was given then are not the first of the {now['records']:,} now"
        )
    if isinstance(source, Kafka) and set(before["servers"]) & set(now["servers"]):  # not all need be named
        before, now = ({**each, "servers": None} for each in (before, now))
    if before == now:
        return ""
    if _told(before) == _told(now):
        return f"the content of {_told(now)} is not what it was then"
    return f"it read {_told(before)} then, and is given {_told(now)} now"


def _told(identity: Identity) -> str:
    """Name a source for a message."""
    if "of" in identity:
        return _told(identity["of"])
    named = [
        str(identity[name])
        for name in ("path", "topic", "table", "query", "data set", "identity")
        if identity.get(name)
    ]
    servers = f" of {','.join(identity['servers'])}" if identity.get("servers") else ""
    return f"{identity['kind']} {', '.join(named)}{servers}".strip()


def _place(path: str | Path) -> Identity:
    """Return where a file is, as it was named: a link is another name, and may be put in the place of a file that moved."""
    return {"path": "-" if str(path) == "-" else str(Path(path).absolute())}


def _content(path: Path, last: int | None = None) -> Identity:
    """Return the size of a file and a checksum of all of it, or of its last bytes."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if last is not None:
                file.seek(max(0, size - last))
            checksum = 0
            while data := file.read(_CHUNK):
                checksum = crc32(data, checksum)
    except OSError as error:
        raise explained(error, path, "read") from error
    return {"bytes": size, "content": checksum}


def _of_items(source: Items, count: int) -> int:
    checksum = 0
    for item in source.items[:count]:
        checksum = crc32(repr(sorted(item.items())).encode(), checksum)
    return checksum
