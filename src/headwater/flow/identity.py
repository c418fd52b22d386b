"""What tells a source or a sink from another of its kind: a checkpoint belongs to what was read and written with it.

An endpoint may say it in an attribute `identity`, of plain values and no secrets, since it is written down. Texts name it;
numbers, such as a checksum, say what is in it. By default two are the same if they are of one class and say the same; a
source that knows better, of which more may have come, has `other_than(before)`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Identity = dict[str, Any]


def identity_of(source: Any) -> Identity:
    """Return what a source is, with its class."""
    identity = getattr(source, "identity", None)
    fields = identity if isinstance(identity, dict) else {} if identity is None else {"identity": identity}
    return {"kind": type(source).__name__, **fields}


def sink_identity_of(sink: Any) -> Identity:
    """Return what a sink is where another would do harm: its `sink_identity`, as all else knows its own parts itself."""
    fields = getattr(sink, "sink_identity", None)
    return {} if fields is None else {"kind": type(sink).__name__, **fields}


def differs(source: Any, before: Identity) -> str:
    """Say how a source is another than one before; nothing when it is the same one, or the same and more of it."""
    now = identity_of(source)
    compare: Callable[[Identity], str] | None = getattr(source, "other_than", None)
    if before["kind"] == now["kind"] and compare is not None:
        return compare(before)
    return difference(before, now)


def difference(before: Identity, now: Identity) -> str:
    """Say how two identities differ; nothing when they do not."""
    if before == now:
        return ""
    if identity_text(before) == identity_text(now):
        if before["kind"] != now["kind"]:
            kinds = f"was read as {before['kind']} then, and is read as {now['kind']} now"
            return f"{identity_text(now)} {kinds}; with a rate, as --rate gives one, a source is a Replay"
        return f"the content of {identity_text(now)} is not what it was then"
    return f"it read {identity_text(before)} then, and is given {identity_text(now)} now"


def identity_text(identity: Identity) -> str:
    """Name an endpoint for a message.

    >>> identity_text({"kind": "Kafka", "topic": "levels", "servers": ["a:1", "b:2"]})
    'Kafka levels of a:1,b:2'
    """
    if "of" in identity:
        return identity_text(identity["of"])
    names = [str(value) for name, value in identity.items() if name == "identity" or isinstance(value, str)][1:]
    lists = "".join(f" of {','.join(value)}" for name, value in identity.items() if name == "servers" and value)
    return f"{identity['kind']} {', '.join(names)}{lists}".strip()


def path_of(path: str | Path) -> str:
    """Return where a file is, as it was named: a link is another name, and may be put in the place of a file that moved."""
    return "-" if str(path) == "-" else str(Path(path).absolute())
