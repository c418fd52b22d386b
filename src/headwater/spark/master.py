"""Asks whether a standalone master answers, since Spark itself would try for a minute or two, and not say what it found."""

from __future__ import annotations

import re
import socket
from struct import Struct

from headwater.errors import RunError, suggestion

_PATIENCE_S = 15.0
_HEAD = Struct(">QB")  # the bytes of a message, these included, and what it is
_LENGTH = Struct(">I")
_ASKED, _NOT_FOUND = 6, 8  # for a file by its name
#: what else Spark knows: threads here (and how often a task may fail, or a small cluster for tests), other managers
_OTHERS = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\]|-cluster\[.+\])?|yarn(-\w+)?|(k8s|mesos)://.+|[a-z][a-z0-9+-]*://.+"
)
_NAME = b"/files/headwater"  # a master has no files; it says so, and notes nothing in its log


#: where one of these is set, a master wants to know who asks before it answers anything
SECRETIVE = ("spark.authenticate", "spark.ssl.rpc.enabled")


def check_answers(master: str, *, ask: bool = True) -> None:
    """Raise if nobody answers at any of the addresses of a standalone master, or, if one may ask, somebody else does."""
    if not master.startswith("spark://"):
        if _OTHERS.fullmatch(master) is None:
            slip = suggestion(re.sub(r"\W.*", "", master), ("local", "spark", "yarn", "k8s"))
            raise RunError(
                f"a master is local[2], local[*], spark://host:port, yarn or k8s://address; got {master!r}{slip}"
            )
        return
    troubles = []
    for address in master.removeprefix("spark://").split(","):
        match = re.fullmatch(r"(?:\[(.+)\]|([^:/]+)):(\d+)", address)
        if match is None:
            raise RunError(f"a Spark master is spark://host:port; got {master!r}")
        trouble = _trouble(match[1] or match[2], int(match[3]), ask=ask)
        if not trouble:
            return
        troubles.append(trouble)
    raise RunError(f"no Spark master answers at {master}: {troubles[0]}")


def _trouble(host: str, port: int, *, ask: bool) -> str:
    """Say what is wrong with an address; nothing if a Spark is there."""
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            return _not_spark(connection) if ask else ""
    except OSError as error:
        return f"{error.strerror or error}; is it running?"


def _not_spark(connection: socket.socket) -> str:
    name = _LENGTH.pack(len(_NAME)) + _NAME
    answer = b""
    try:
        connection.settimeout(_PATIENCE_S)
        connection.sendall(_HEAD.pack(_HEAD.size + len(name), _ASKED) + name)
        while len(answer) < _HEAD.size + len(name) and (more := connection.recv(4096)):
            answer += more
    except OSError:  # it hung up, or never said anything
        pass
    if answer[_HEAD.size - 1 :].startswith(bytes([_NOT_FOUND]) + name):
        return ""
    return "what listens there is no Spark master; is it the port of the master, 7077 unless told, or that of its page?"
