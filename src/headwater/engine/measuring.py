"""What the instances of a run tell together: how far time has come, what is in hand, what became of records at writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.data.batch import END, NO_WATERMARK
from headwater.metrics import added_accounts
from headwater.operators.task import Task


def watermarks_of(tasks: Sequence[Task]) -> dict[str, int]:
    """Return how far event time has come at each step, at its slowest instance; no word of steps that know of none."""
    watermarks: dict[str, int] = {}
    for task in tasks:
        if NO_WATERMARK < task.watermark < END:
            watermarks[task.name] = min(task.watermark, watermarks.get(task.name, END))
    return watermarks


def in_hand_of(tasks: Sequence[Task]) -> list[int]:
    """Return, for each instance, the records that a worker has in hand for it or carries to it; with the run's lock held."""
    counts = [(task.in_hand or 0) + task.given_up for task in tasks]
    for task in tasks:
        for delivery in list(task.in_transit):
            if delivery.batch is not None:
                counts[delivery.to] += delivery.size
    return counts


def accounts_of(tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
    """Return what writers tell of records that they have taken, by step."""
    writers = [(task.name, task.operator.account) for task in tasks if task.operator is not None]
    accounts: dict[str, dict[str, Any]] = {}
    for name, account in dict.fromkeys(writers):  # once each: a sink may have given all its instances one writer
        if account is not None:
            accounts[name] = added_accounts(accounts.get(name, {}), account())
    return accounts
