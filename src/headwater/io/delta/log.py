"""The log of a Delta table: numbered commits, each a file of JSON that is there whole or not at all.

A commit says which files are new and which are gone, and beside them up to which part a writer has come, so that nobody adds
a part twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from headwater.errors import InputError
from headwater.io.delta import FOLDER
from headwater.io.delta.summary import Action, actions_of, last_summary, summary
from headwater.io.files import explained

_LAST = f"{FOLDER}/_last_checkpoint"
_EVERY = 50  #: commits, of which readers need not look at those before the last summary
_READER, _WRITER = 1, 2  #: versions of the protocol: tables without deletion vectors, column mapping and the like
_TRIES = 100


class TablePlace(Protocol):
    """Where a table is, for who reads it; names have `/` between them."""

    def names(self, folder: str = "") -> list[str]:
        """Return what a folder of it holds; nothing where there is none."""

    def raw(self, name: str) -> bytes:
        """Return the bytes of a file."""


class WritablePlace(TablePlace, Protocol):
    """Where a table is, for who adds to it."""

    def put(self, name: str, data: bytes) -> bool:
        """Write a file whole or not at all, unless there is one; return whether it was written."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file in place of the one that is there."""


class Folder:
    """A table in a folder of this machine, for who reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def names(self, folder: str = "") -> list[str]:
        """Return what a folder of it holds."""
        return [each.name for each in (self.path / folder).glob("*")]

    def raw(self, name: str) -> bytes:
        """Return the bytes of a file."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise explained(error, self.path / name, "read") from error


class DeltaTable:
    """What a table consists of at a version, the last one unless told."""

    def __init__(self, place: TablePlace, version: int | None = None) -> None:
        self._place = place
        self.version = -1  #: of the table, -1 while there is none
        self.files: dict[str, Action] = {}  #: by their paths, in the order in which they came
        self.writers: dict[str, int] = {}  #: up to which part each has come
        self.protocol: Action = {}
        self.metadata: Action = {}
        self._catch_up(version)

    @property
    def columns(self) -> dict[str, str]:
        """Its columns, with their types in JSON."""
        return dict(_fields(self.metadata["schemaString"]))

    def _catch_up(self, up_to: int | None = None) -> None:
        """Read what was committed since the last look."""
        names = self._place.names(FOLDER)
        commits = {int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)}
        last = max(commits, default=self.version) if up_to is None else up_to
        latest = last_summary(names, last if up_to is not None else None)
        if latest is not None and latest[0] > self.version:
            self.version, parts = latest
            for part in parts:
                self._play(actions_of(self._place.raw(f"{FOLDER}/{part}")))
        while self.version < last and self.version + 1 in commits:
            self.version += 1
            self._play(commit_of(self._place, self.version))
        if self.version < last:
            raise InputError(f"cannot read the log of {self._place}: commit {self.version + 1} is missing")
        if self.version >= 0:
            self._check()

    def _play(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if content := action.get("add"):
                self.files[content["path"]] = content
            elif content := action.get("remove"):
                self.files.pop(content["path"], None)
            elif content := action.get("txn"):
                self.writers[content["appId"]] = content["version"]
            elif content := action.get("metaData"):
                self.metadata = content
            elif content := action.get("protocol"):
                self.protocol = content

    def _check(self) -> None:
        """Refuse tables that take more than is known here."""
        if not self.metadata or not self.protocol:
            raise InputError(f"cannot read the log of {self._place}: it does not say what columns the table has")
        if self.protocol["minReaderVersion"] > _READER:
            raise InputError(
                f"cannot read {self._place}: its log is of version {self.protocol['minReaderVersion']} of Delta's protocol "
                f"for readers, with deletion vectors or the like; tables of version {_READER} are read"
            )


class DeltaLog(DeltaTable):
    """The log of a table as a writer of its own name sees it, who adds files."""

    def __init__(self, place: WritablePlace, writer: str, columns: str) -> None:
        """Read the log of a table whose columns are these, as Spark tells them in JSON; there may be no table yet."""
        self._writable, self._writer, self._columns = place, writer, columns
        super().__init__(place)

    @property
    def committed(self) -> int:
        """The last part of this writer that is there."""
        return self.writers.get(self._writer, -1)

    def add(self, part: int, files: Mapping[str, int], records: int) -> None:
        """Add the files of a part, by name and with their bytes: all of them at once, unless they are there."""
        now_ms = round(time.time() * 1000)
        additions = [
            {"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": now_ms, "dataChange": True}}
            for name, size in files.items()
        ]
        if len(additions) == 1:
            additions[0]["add"]["stats"] = json.dumps({"numRecords": records})
        commit_info = {"timestamp": now_ms, "operation": "STREAMING UPDATE", "engineInfo": "headwater"}
        transaction = {"appId": self._writer, "version": part, "lastUpdated": now_ms}
        for _ in range(_TRIES):
            if self.committed >= part:
                return
            first = [] if self.metadata else self._founding(now_ms)
            if self._put([{"commitInfo": commit_info}, *first, {"txn": transaction}, *additions]):
                self._summarise()
                return
            self._catch_up()  # somebody else has added something
        raise InputError(f"cannot write {self._place}: others add to its log all the time")

    def _founding(self, now_ms: int) -> list[Action]:
        metadata = {
            "id": str(uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._columns,
            "partitionColumns": [],
            "configuration": {},
            "createdTime": now_ms,
        }
        return [{"protocol": {"minReaderVersion": _READER, "minWriterVersion": _WRITER}}, {"metaData": metadata}]

    def _put(self, actions: list[Action]) -> bool:
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        if not self._writable.put(_commit(self.version + 1), lines.encode()):
            return False
        self.version += 1
        self._play(actions)
        return True

    def _check(self) -> None:
        """Refuse tables that a writer would have to do more for, and others' columns."""
        super()._check()
        needs = self.protocol["minWriterVersion"]
        if needs > _WRITER:
            raise InputError(
                f"cannot write {self._place}: its log is of version {needs} of Delta's protocol for writers; tables of "
                f"versions up to {_WRITER} are written"
            )
        if self.metadata.get("partitionColumns"):
            columns = ", ".join(self.metadata["partitionColumns"])
            raise InputError(f"cannot write {self._place}: it lies in folders by {columns}; one without is written")
        if '"delta.' in self.metadata["schemaString"]:
            raise InputError(f"cannot write {self._place}: its columns have rules that only Delta itself keeps")
        there, ours = (_fields(text) for text in (self.metadata["schemaString"], self._columns))
        if there != ours:
            raise InputError(
                f"cannot write {self._place}: the table has the columns {_fields_text(there)}, "
                f"records have {_fields_text(ours)}"
            )

    def _summarise(self) -> None:
        """Write, now and then, all that the log says into one file, so that readers need not go through all commits."""
        if self.version == 0 or self.version % _EVERY:
            return
        data = summary(self.protocol, self.metadata, self.writers, list(self.files.values()))
        if self._writable.put(f"{FOLDER}/{self.version:020d}.checkpoint.parquet", data):
            size = len(self.files) + len(self.writers) + 2
            self._writable.replace(_LAST, json.dumps({"version": self.version, "size": size}).encode())


def commit_of(place: TablePlace, version: int) -> list[Action]:
    """Return what a commit says."""
    lines = place.raw(_commit(version)).splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise InputError(f"cannot read the log of {place}: commit {version} is no JSON ({error})") from None


def _commit(version: int) -> str:
    return f"{FOLDER}/{version:020d}.json"


def _fields(schema: str) -> list[tuple[str, str]]:
    """Return the names and types of columns; whether values may be missing is of no matter to who adds some."""
    return [(field["name"], json.dumps(field["type"])) for field in json.loads(schema)["fields"]]


def _fields_text(fields: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind.strip(chr(34))}" for name, kind in fields)
