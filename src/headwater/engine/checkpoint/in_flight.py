"""Puts what was on its way into the queues of a checkpoint, behind what waits there."""

from __future__ import annotations

from typing import Any

from headwater.data.batch import NO_WATERMARK, Batch
from headwater.flow.flow import Flow
from headwater.flow.steps import Input
from headwater.operators.operator import spread


def enqueue(flow: Flow, tasks: dict[str, list[dict[str, Any]]], step: str, port: str, messages: list[Batch]) -> None:
    """Have messages of a stream wait at all steps that read it, of those that a checkpoint has tasks of."""
    for reader in flow.steps.values():
        for number, edge in enumerate(reader.inputs):
            if (edge.step, edge.port) == (step, port) and reader.name in tasks:
                for message in messages:
                    put(tasks[reader.name], number, edge, message)


def put(tasks: list[dict[str, Any]], port: int, edge: Input, message: Batch) -> None:
    """Put records behind what waits at the instances of a step, and behind them at all how far event time has come."""
    parts: list[Batch | None] = [None] * len(tasks)
    if message.length:
        records = Batch(message.columns, message.length, message.stamps)
        parts = [records] * len(tasks) if edge.grouping == "all" else [records, *parts[1:]]
        if edge.grouping != "all" and edge.keys:
            parts = spread(records, edge.keys, len(tasks))
    for task, part in zip(tasks, parts, strict=True):
        channel = task["ports"].index(port)
        if part is not None:
            task["queue"].append([channel, part, NO_WATERMARK])
        if message.watermark > NO_WATERMARK:
            task["queue"].append([channel, None, message.watermark])
