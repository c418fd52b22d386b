"""Records in memory: for tests, documentation and the first five minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zlib import crc32

from headwater.data.batch import Batch
from headwater.data.schema import Fields, Schema, Type
from headwater.errors import FlowError, InputError
from headwater.flow.endpoints import DeliverySemantics, Reject, Resume
from headwater.flow.identity import Identity


class Items:
    """Reads records (dicts) from a list or any iterable; the schema is guessed from the first unless given.

    >>> Items([{"id": "a", "x": 1.0}]).schema
    Schema(fields=(('id', 'text'), ('x', 'float')))
    """

    resume: Resume = "position"

    def __init__(self, items: Iterable[Mapping[str, Any]], schema: Fields | None = None) -> None:
        self.items = items if isinstance(items, Sequence) else list(items)
        self._schema = Schema.of(schema) if schema is not None else guess_schema(self.items)

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self._schema

    @property
    def identity(self) -> Identity:
        """How many they are, and which."""
        return {"records": len(self.items), "content": self._content(len(self.items))}

    def other_than(self, before: Identity) -> str:
        """Say whether these are other records than before; more of them are not."""
        count = before["records"]
        if len(self.items) >= count and self._content(count) == before["content"]:
            return ""
        return f"the {count:,} records that it was given then are not the first of the {len(self.items):,} now"

    def _content(self, count: int) -> int:
        checksum = 0
        for item in self.items[:count]:
            checksum = crc32(repr(sorted(item.items())).encode(), checksum)
        return checksum

    def open(self, reject: Reject, position: int | None = None) -> _ItemsReader:
        """Start at the first record, or after as many as `position` says."""
        return _ItemsReader(self, reject, position or 0)

    def __str__(self) -> str:
        return f"{len(self.items)} items"


class _ItemsReader:
    def __init__(self, source: Items, reject: Reject, position: int) -> None:
        self._source, self._reject = source, reject
        self.position = position  #: records read so far

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        rows = self._source.items[self.position : self.position + limit]
        if not rows:
            return None
        self.position += len(rows)
        return checked_rows(rows, self._source.schema, self._reject)

    def close(self) -> None:
        pass


def guess_schema(items: Sequence[Mapping[str, Any]]) -> Schema:
    """Guess the types of columns from the values that the first records have."""
    if not items:
        raise FlowError(
            "cannot guess the columns of an empty list; give a schema, such as schema={'id': str, 'x': float}"
        )
    for item in items[:1000]:
        if not isinstance(item, Mapping):
            raise FlowError(f"expected records (dicts), such as [{{'x': 1.5}}]; got {type(item).__name__} {item!r}")
    kinds: dict[str, Type] = {}
    names = dict.fromkeys(name for item in items[:1000] for name in item)
    for name in names:
        values = [item[name] for item in items[:1000] if item.get(name) is not None]
        kinds[name] = guess_type(values)
    return Schema.of(kinds)


def guess_type(values: Sequence[Any]) -> Type:
    """Guess the type that all of these values fit.

    >>> guess_type([1, 2.5]), guess_type([True]), guess_type(["a", 1])
    ('float', 'bool', 'any')
    """
    types = {type(value) for value in values}
    for kinds, name in (({bool}, "bool"), ({int}, "int"), ({int, float}, "float"), ({str}, "text")):
        if types and types <= kinds:
            return name  # type: ignore[return-value]
    return "any" if types else "text"


def checked_rows(rows: Sequence[Any], schema: Schema, reject: Reject) -> Batch:
    """Make a batch of the records that fit the schema, and reject the others one by one."""
    try:
        return Batch.of_rows(rows, schema)
    except (FlowError, AttributeError):  # of what has no fields
        pass
    good = []
    for row in rows:
        if not isinstance(row, Mapping):
            reject(repr(row), f"expected a record (a dict), got {type(row).__name__}")
            continue
        try:
            Batch.of_rows([row], schema)
            good.append(row)
        except FlowError as error:
            reject(repr(dict(row)), str(error))
    return Batch.of_rows(good, schema)


@dataclass
class Collect:
    """Keeps what is written to it: `records` as dicts, in the order they came."""

    writers: ClassVar = "many"
    delivery: ClassVar[DeliverySemantics] = "neither"

    batches: list[Batch] = field(default_factory=list)

    def open(self, schema: Schema) -> _Collector:
        """Start collecting."""
        return _Collector(self.batches)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records written so far."""
        return [row for batch in self.batches for row in batch.rows()]

    def __str__(self) -> str:
        return "collect"


class _Collector:
    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def write(self, batch: Batch) -> None:
        self._batches.append(batch)

    def close(self) -> None:
        pass


class Discard:
    """Takes records and forgets them: measures a flow without its sink."""

    writers = "many"
    delivery: DeliverySemantics = "idempotent"  # of what is forgotten nothing is there twice
    apart = True

    def open(self, schema: Schema) -> Discard:
        """Start forgetting."""
        return self

    def write(self, batch: Batch) -> None:
        """Forget the batch."""

    def close(self) -> None:
        """Nothing to release."""


class Failing:
    """A sink that always fails: shows what a flow does when its sink is gone."""

    writers = "many"
    apart = True
    delivery: DeliverySemantics = "neither"

    def __init__(self, message: str = "the sink is gone") -> None:
        self.message = message

    def open(self, schema: Schema) -> Failing:
        """Open without trouble."""
        return self

    def write(self, batch: Batch) -> None:
        """Fail."""
        raise InputError(self.message)

    def close(self) -> None:
        """Nothing to release."""
