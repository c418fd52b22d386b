"""A flow that streams on Spark in a process of its own, out of a file that is let go of lap by lap.

The file has all messages from the beginning, and one beside it, the gate, says up to which byte they may be read: so a
stream that has taken a lap waits, its Javas and Python processes as warm as they are, until the next lap is let go of.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from headwater.errors import RunError
from headwater.flow import Flow
from headwater.flow.ranges import Offset, RangeRequest, Ranges, Sizes
from headwater.io import ParquetTable
from headwater.io.ranges.lines import LineRanges
from headwater.processes import ending
from headwater_bench.experiments.processors import Processors
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats

if TYPE_CHECKING:
    from headwater.spark.running import SparkRun

_LOOK_S = 0.1  #: between two looks how far a stream has come
_EVERY = "300 milliseconds"  #: between two looks of a stream that waits, which then leaves the processors to others
_TOLD_S = 30.0  #: for Spark to tell of a micro-batch that is through
#: not run as a module: tasks import the classes of one by its name
_PROGRAM = "import sys; from headwater_bench.experiments import cluster_stream; cluster_stream.main(sys.argv[1:])"
_PATIENCE_S = 240.0  #: for a lap, and for a stream to end

FLOWS: dict[str, Callable[[GatedFile, Path], Flow]] = {
    "etl": lambda source, out: etl(source, wide=True, publish=ParquetTable(out)),
    "stats": lambda source, out: stats(source, publish=ParquetTable(out)),
    "pred": lambda source, out: pred(source, publish=ParquetTable(out)),
}


class GatedFile(MessageFile):
    """A file of messages that may be read up to the byte that another file says, which is replaced now and then."""

    def __init__(self, path: str | Path, gate: str | Path) -> None:
        super().__init__(path)
        self.gate = Path(gate)

    def ranges(self, request: RangeRequest) -> Ranges:
        """Return the file in ranges of bytes that have no end."""
        return _GatedRanges(self, request.sizes)


class _GatedRanges(LineRanges):
    has_end = False

    def __init__(self, source: GatedFile, sizes: Sizes) -> None:
        super().__init__(source, sizes)
        self._gate = source.gate

    def advance(self, at: Offset) -> Offset:
        """Return the end of the next lines up to the gate, which is where a line ends."""
        rest, sizes = int(self._gate.read_text()) - at["byte"], self.sizes
        if rest <= 0:
            return at
        self.sizes = replace(sizes, batch_bytes=min(sizes.batch_bytes, rest))
        try:
            return {**super().advance(at), "ended": False}
        finally:
            self.sizes = sizes


class Mark(NamedTuple):
    """When a micro-batch was done, the messages that were read by then, and processor seconds by kind of process."""

    at_s: float
    read: int
    used_s: Mapping[str, float]


class Stream:
    """A stream at work in another process; what it has put into its table is there until the folder is removed."""

    def __init__(
        self,
        master: str,
        flow: str,
        messages: Path,
        folder: Path,
        *,
        buckets: int,
        batch_bytes: int,
        place: Callable[[int], None] = lambda pid: None,
        keepers: Sequence[int] = (),
    ) -> None:
        folder.mkdir()
        self._name = f"{flow} on {master}"
        self._gate, self.table = folder / "gate", folder / "results"
        self._gate.write_text("0")
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the stream
        options = [master, flow, messages, folder, buckets, batch_bytes]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        place(self._process.pid)
        self._processors = Processors(self._process.pid, keepers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()  # its Java ends with it
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def lap(self, up_to: int, count: int, hear: Callable[[int], None] = lambda read: None) -> list[Mark]:
        """Let the stream read up to a byte, and return when which of so many messages were in; `hear` is told, too."""
        fresh = self._gate.with_suffix(".new")
        fresh.write_text(str(up_to))
        fresh.replace(self._gate)
        marks: list[Mark] = []
        timer = threading.Timer(_PATIENCE_S, self._process.kill)
        timer.start()
        try:
            while not marks or marks[-1].read < count:
                at_s, read = json.loads(self._line())
                marks.append(Mark(at_s, read, self._processors.look()))
                hear(read)
        finally:
            timer.cancel()
        return marks

    def finish(self) -> list[dict[str, int]]:
        """Have the stream end, with all that it has read in its table; return how long its micro-batches took, in ms."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        told: list[dict[str, int]] = json.loads(self._line())
        try:
            status = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise RunError(f"{self._name} did not end within {_PATIENCE_S:.0f} s") from None
        if status:
            raise RunError(self._why())
        return told

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RunError(self._why())
        return line

    def _why(self) -> str:
        self._said.seek(0)
        return f"{self._name} {ending(self._process.returncode)}: {self._said.read().strip()[-500:]}"


def main(given: Sequence[str]) -> None:
    """Stream here until nobody is there any more to say when; print how far it has come whenever it has come further."""
    from headwater import spark

    master, flow, messages, place, buckets, batch_bytes = given
    folder = Path(place)
    running = spark.start(
        FLOWS[flow](GatedFile(messages, folder / "gate"), folder / "results"),
        master=master,
        checkpoint=folder / "checkpoint",
        sizes=Sizes(int(buckets), batch_bytes=int(batch_bytes)),
        buckets=int(buckets),
        every=_EVERY,
    )
    told, is_over = 0, False
    while not is_over and not running.done.is_set():
        is_over = bool(select.select([sys.stdin], [], [], _LOOK_S)[0])
        read = running.sample().records_in
        if read > told:
            told = read
            print(json.dumps([time.monotonic(), read]), flush=True)
    print(json.dumps(_took_ms(running)), flush=True)
    running.stop()
    running.wait()


def _took_ms(running: SparkRun) -> list[dict[str, int]]:
    """Return what Spark says of each micro-batch: what each part of it took; it tells of the last one a little later."""
    until = time.monotonic() + _TOLD_S
    while True:
        told = [dict(each.durationMs) for each in running._query.recentProgress if "addBatch" in each.durationMs]
        if len(told) >= running._batches or time.monotonic() > until:
            return told
        time.sleep(_LOOK_S)
