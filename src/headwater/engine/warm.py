"""Loads the kernels that a flow is sure to need before its first record comes, or has them compiled meanwhile."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.data.jit.usage import Usage, load_recent
from headwater.flow.flow import Flow
from headwater.flow.steps import Apply, Read, Write
from headwater.operators import build
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.keys import KeySlots
from headwater.operators.operator import partitions

#: by every run with checkpoints, and by most of their sinks
_NEEDED = ("headwater.engine.checkpoint", "headwater.operators.write", "headwater.io.transactions.line_file")


def kernels_of(graph: ExecutionGraph) -> Usage:
    """Return what remembers the kernels of a flow from run to run."""
    steps = {instance.step.name: type(instance.step).__name__ for instance in graph.instances}
    return Usage(repr(sorted(steps.items())))


def load_kernels(graph: ExecutionGraph) -> None:
    """Run the kernels of text, key and partition columns once, on nothing."""
    has_text = False
    for step in {instance.step.name: instance.step for instance in graph.instances}.values():
        for edge in step.inputs:
            nothing = Batch.none(edge.schema)
            has_text = has_text or "text" in dict(edge.schema.fields).values()
            if edge.keys:
                KeySlots(edge.schema, edge.keys).slots_of(nothing)
                if step.instances > 1:
                    partitions([nothing[key] for key in edge.keys], 2)
    if has_text:
        Text.of([""]).take(np.zeros(1, np.int64))


def load_ahead(flow: Flow) -> None:
    """Load what a run of a flow is sure to need, in the process that will run it, before there is anything to run."""
    for name in _NEEDED:
        import_module(name)
    for step in flow.steps.values():
        if not isinstance(step.kind, (Read, Write, Apply)):  # those are opened, and whose they are may do anything
            build(step)
    graph = ExecutionGraph.of(flow)
    kernels_of(graph).load()
    load_recent()  # its steps may have run here with others, as parts of a flow that was cut otherwise
    load_kernels(graph)
