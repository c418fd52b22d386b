"""Stages with state on Spark: each bucket of keys is one group, and its state one value in our own format."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch
from headwater.errors import RunError
from headwater.operators import Operator
from headwater.spark.broadcast import SentLayout
from headwater.spark.envelope import COUNTS, FIRST_SINK, ROW, OfSplit, Row
from headwater.spark.executor import Executor
from headwater.spark.seeds import seed_of
from headwater.spark.stages import Layout, Stage
from headwater.spark.titles import title_of, titled

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

STATE = "token binary, state binary"
_LARGE = 32 * 2**20  #: bytes of what only passes by that are kept until more is handed on

#: Operators that keep no state, by flow and stage: building them again for each part of a source, or each time that Spark
#: has another worker take a bucket, would take time.
_idle: dict[tuple[str, int], dict[str, Operator]] = {}
#: Stages as the last micro-batch left them in this worker, by flow and bucket, each with the token of its state and how many
#: bytes it has as it was saved; the one that ran last is the last.
_live: dict[tuple[str, int], tuple[bytes, Executor, int]] = {}
#: The most that they have in all, but for the last one. Spark gives a bucket now to this worker, now to that one, which all
#: keep it: without a bound, each would come to have the state of all buckets, most of it out of date.
_LIVE_BYTES = 256 * 2**20

#: Flows that this worker has run lately, the last one last; what belongs to others is forgotten.
_recent: list[str] = []
_FLOWS = 4


def _used(file: str) -> None:
    """Take note that a flow is at work here, and let go of what long ended ones have left."""
    if _recent and _recent[-1] == file:
        return
    _recent[:] = [*(name for name in _recent if name != file), file][-_FLOWS:]
    for store in (_idle, _live):
        for key in [key for key in store if key[0] not in _recent]:
            del store[key]


class SourceStage:
    """What happens to the records of a source where they are read."""

    def __init__(self, sent_layout: SentLayout, stage: Stage) -> None:
        self.sent_layout, self.stage = sent_layout, stage.number
        self.title = title_of(stage.steps)

    def __call__(
        self, number: int, put_out: Iterator[tuple[int, Batch]], split: OfSplit | None = None
    ) -> Iterator[Row]:
        """Run the stage on one piece of the source."""
        _used(self.sent_layout.file)
        layout = self.sent_layout.layout()
        stage = layout.stages[self.stage]
        executor = _build(self.sent_layout, stage)
        yield from executor.read(number, put_out, split)
        yield -1, COUNTS, number, executor.counts()


def with_level(rows: DataFrame, sent_layout: SentLayout, layout: Layout, level: int) -> DataFrame:
    """Add the stages of one level to a query."""
    buckets = layout.buckets_of(level)
    # what is on its way to a sink travels with buckets: Spark would look for the state of a group of its own
    by = f"CASE bucket WHEN -1 THEN {buckets[0]} WHEN -2 THEN {buckets[-1]} ELSE bucket END AS bucket"
    grouped = rows.selectExpr(by, "target", "seq", "frame").groupBy("bucket")
    run = titled(_on_bucket(sent_layout, level), title_of(layout.steps_of(level)))
    stage_rows = grouped.applyInPandasWithState(run, ROW, STATE, "append", "NoTimeout")
    # computing something makes plain rows of Arrow's, which is what a second level's shuffle can take
    return stage_rows.selectExpr("bucket - 1 AS bucket", "target", "seq", "frame")


def _on_bucket(sent_layout: SentLayout, level: int) -> Callable[..., Iterator[pd.DataFrame]]:
    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        # Spark sends a function that stands in another with a copy of the globals that it names: it must not name `_live`
        return run_bucket(sent_layout, level, int(key[0]), frames, state)

    return run


def run_bucket(
    sent_layout: SentLayout, level: int, bucket: int, frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Run a bucket's stage on what a micro-batch has for it, and update its state."""
    _used(sent_layout.file)
    layout = sent_layout.layout()
    stage = layout.stage_of_bucket(bucket)
    if stage is None or stage.level != level:  # on the way to a later level
        for frame in frames:
            yield frame.assign(bucket=frame["bucket"] + 1)
        return
    came = (row for frame in frames for row in zip(frame["target"], frame["seq"], frame["frame"], strict=True))
    rows: list[Row] = []
    frames_in: list[tuple[int, bytes]] = []
    size = 0
    for target, seq, data in came:
        if 0 <= target < FIRST_SINK:
            frames_in.append((target, data))
            continue
        rows.append((-1 - target % 2, target, seq, data))
        size += len(data)
        if size > _LARGE:
            yield _frame(rows)
            rows, size = [], 0
    if frames_in:
        executor = _executor(sent_layout, bucket, state)
        rows += executor.take(frames_in)
        token = layout.fingerprint + secrets.token_bytes(8)
        state_bytes = executor.save()
        state.update((token, state_bytes))
        rows.append((-1, COUNTS, 0, executor.counts()))
        _keep((sent_layout.file, bucket), token, executor, len(state_bytes))
    if rows:
        yield _frame(rows)


def _executor(sent_layout: SentLayout, bucket: int, state: Any) -> Executor:
    """Return the bucket's stage, as it is in this worker if no other has had it since, else from saved state."""
    token, state_bytes = state.get if state.exists else (b"", b"")
    last, executor, _ = _live.pop((sent_layout.file, bucket), (None, None, 0))
    if executor is not None and last == bytes(token):
        return executor
    layout = sent_layout.layout()
    stage = layout.stage_of_bucket(bucket)
    assert stage is not None
    executor = _build(sent_layout, stage, bucket)
    if state_bytes:
        _check_mark(layout, bytes(token))
        executor.load(bytes(state_bytes))
    elif layout.seeds:
        executor.load(seed_of(Path(layout.seeds), bucket))
    return executor


def _keep(bucket: tuple[str, int], token: bytes, executor: Executor, size: int) -> None:
    """Keep a bucket's stage for the next micro-batch; those that have not run for longest make room, never this one."""
    nbytes = size + sum(each for _, _, each in _live.values())
    while _live and nbytes > _LIVE_BYTES:
        _, _, dropped = _live.pop(next(iter(_live)))
        nbytes -= dropped
    _live[bucket] = token, executor, size


def _build(sent_layout: SentLayout, stage: Stage, bucket: int | None = None) -> Executor:
    """Build a stage anew, but for operators that keep no state: one may take long to build, as it may read a table."""
    layout = sent_layout.layout()
    idle = _idle.setdefault((sent_layout.file, stage.number), {})
    executor = Executor(layout, stage, bucket, idle)
    # where a source is read, nothing is ever restored: there, one that could learn has nothing to learn from either
    roles = ("free", "copied") if bucket is None else ("free",)
    for name, operator in executor.operators.items():
        if layout.partitionings[name].role in roles and (bucket is None or not operator.saves):
            idle[name] = operator
    return executor


def _check_mark(layout: Layout, token: bytes) -> None:
    """Raise if state was kept by another flow, or for other buckets: keys would not find what is theirs."""
    if token.startswith(layout.fingerprint):
        return
    (buckets,) = unpack_from("<I", token)
    if buckets != layout.buckets:
        raise RunError(
            f"the checkpoint spreads keys over {buckets} buckets, not over {layout.buckets}; give buckets={buckets}"
        )
    raise RunError(
        f"the checkpoint is of another flow than {layout.flow.name!r}, or of one with other steps or columns"
    )


def _frame(rows: list[Row]) -> pd.DataFrame:
    import pandas as pd

    bucket, target, seq, frame = zip(*rows, strict=True)
    return pd.DataFrame({"bucket": [b + 1 for b in bucket], "target": target, "seq": seq, "frame": list(frame)})
