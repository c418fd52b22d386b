"""Sifting: one record that cannot be encoded costs that record, not its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.records import json_texts

Encoded = TypeVar("Encoded")


def attempt_each(batch: Batch, attempt: Callable[[Batch], object], first: int = 0) -> Refused:
    """Do something to all records for which it can be done, in their order; return the others, counted from `first`.

    `attempt` raises InputError, and then has done nothing, for records of which one is unfit; it is made on halves to
    find that one.
    """
    try:
        attempt(batch)
    except InputError as error:
        if batch.length <= 1:
            return {first: str(error)}
        middle = batch.length // 2
        return attempt_each(batch.slice(0, middle), attempt, first) | attempt_each(
            batch.slice(middle, batch.length), attempt, first + middle
        )
    return {}


def sift(batch: Batch, encode: Callable[[Batch], Encoded]) -> tuple[Encoded, Batch, Refused]:
    """Encode the records that can be; return also which they are, and why the others cannot."""
    try:
        return encode(batch), batch, {}
    except InputError:
        refusals = attempt_each(batch, encode)
    records = without(batch, refusals)
    return encode(records), records, refusals


def without(batch: Batch, refusals: Refused) -> Batch:
    """Return the records that were not refused."""
    return batch.take(np.delete(np.arange(batch.length), list(refusals))) if refusals else batch


def storable(batch: Batch, schema: Schema) -> tuple[Batch, Refused]:
    """Return the records that Arrow's types can hold: all, unless an object in a column of `any` has no JSON form."""
    objects = [name for name, kind in schema.fields if kind == "any"]
    if not objects:
        return batch, {}
    _, records, refusals = sift(batch, lambda batch: [json_texts(batch[name]) for name in objects])
    return records, refusals
