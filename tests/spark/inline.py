"""Runs a flow cut into stages as Spark would, bucket by bucket and micro-batch by micro-batch, but in this process."""

from __future__ import annotations

import random
from collections import defaultdict

from headwater.data.batch import END, Batch
from headwater.flow.steps import Read
from headwater.operators.operator import DEAD, rejection_letter
from headwater.spark.envelope import FIRST_SINK, Envelope, in_order
from headwater.spark.executor import Executor
from headwater.spark.stages import cut


def run(flow, *, buckets=3, batching=None, seed=0):
    """Run to the end; `batching` gives the sizes of micro-batches, each read in up to three parts."""
    random.seed(seed)
    layout = cut(flow, buckets)
    states: dict[int, bytes] = {}
    out = defaultdict(list)
    sources = {s.name: _read(layout, s) for s in flow.steps.values() if s.is_source}
    seq = 0
    while any(not done for _, done in sources.values()) or not seq:
        rows = []
        for name in sources:
            batches, done = sources[name]
            if done:
                continue
            size = next(batching) if batching else 1000
            take, rest = batches[:size], batches[size:]
            sources[name] = rest, not rest
            parts = _thirds(take)
            for part in parts:
                rows += _read_part(layout, name, part, seq)
                seq += 1
            if not rest:
                rows += _read_part(layout, name, [(0, Batch.of_watermark(END))], seq)
                seq += 1
        for level in range(1, layout.levels + 1):
            rows = _level(layout, level, rows, states)
        envelopes = defaultdict(list)
        for _, target, _, frame in rows:
            envelopes[target].append(Envelope.unpack(frame))
        for target, found in envelopes.items():
            out[layout.sinks[target - FIRST_SINK]] += in_order(found).batch.rows()
    return out


def _thirds(batches):
    return [batches[len(batches) * i // 3 : len(batches) * (i + 1) // 3] for i in range(3)]


def _read(layout, step):
    assert isinstance(step.kind, Read)
    letters = []
    reader = step.kind.source.open(lambda text, why: letters.append(rejection_letter(step.name, text, why)))
    batches = []
    while (batch := reader.read(3, 0.0)) is not None:
        batches += [(DEAD, letter) for letter in letters]
        letters.clear()
        if batch.length:
            batches.append((0, batch))
    return batches, False


def _read_part(layout, name, batches, seq):
    executor = Executor(layout, layout.source_stage(name))
    return list(executor.read(seq, batches))


def _level(layout, level, rows, states):
    by_bucket = defaultdict(list)
    for row in random.sample(rows, len(rows)):
        by_bucket[row[0]].append(row)
    out = []
    for bucket, mine in by_bucket.items():
        stage = layout.stage_of_bucket(bucket)
        if stage is None or stage.level != level:
            out += mine
            continue
        executor = Executor(layout, stage, bucket)
        if bucket in states:
            executor.load(states[bucket])
        out += executor.take((target, frame) for _, target, _, frame in mine)
        states[bucket] = executor.save()
    return out
