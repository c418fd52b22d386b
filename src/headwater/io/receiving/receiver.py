"""The thread that reads a source into a log on disk, from which a flow then reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

from headwater.data.batch import NO_WATERMARK, Batch
from headwater.data.jit import answering_at_once
from headwater.errors import HeadwaterError, InputError, RunError
from headwater.flow.endpoints import (
    Reader,
    Source,
    commit,
    dropped_by,
    known_of,
    open_reader,
    position_of,
    recognizes,
    resume_of,
)
from headwater.flow.steps import OnTheWay
from headwater.io.files import is_full
from headwater.io.log import Log
from headwater.io.receiving.rounds import last_in, pack_round
from headwater.operators.operator import DEAD, rejection_letter

log = logging.getLogger(__name__)

_RECORDS = 4096  # read at once
_PATIENCE_S = 0.05
_QUIET_S = 60.0  #: between two warnings
_MOST_BYTES = 2**30  # on disk; beyond, reading waits until the flow has caught up


class Receiver:
    """The thread that reads a source into its log; what the source sent is acknowledged when it is safe there.

    The splits of a source that has some are read side by side in event time, to which there is a `way`.
    """

    def __init__(
        self, step: str, source: Source, folder: Path, *, until_idle: bool, way: Sequence[OnTheWay] = ()
    ) -> None:
        self._step, self._until_idle = step, until_idle
        self._letters: list[Batch] = []
        self._resumes, self._recognizes = resume_of(source) == "position", recognizes(source)
        self._stopping = Event()
        self.error: HeadwaterError | None = None  #: why it ended early, if it did
        self.dropped = 0  #: messages that the reader had no room for
        self.log = Log(folder)  #: for those who read it in this process
        self._reader: Reader | None = None
        try:
            last = last_in(folder, self.log.end)
            self._last = last.position
            if not last.ended:
                self._reader = open_reader(source, self._reject, last.position)
                if way:
                    from headwater.io.aligned import align

                    self._reader = align(step, self._reader, source.schema, way, self._reject)
                # from now on nothing is acknowledged but what is in the log
                commit(self._reader, position_of(self._reader))
        except BaseException:
            self.log.close()
            raise
        self._thread = Thread(target=self._run, name=f"read {step}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it reads no more; what it has read is safe then."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop reading, soon."""
        self._stopping.set()

    def close(self) -> None:
        """Stop reading; what was read is safe."""
        self.stop()
        self._thread.join()

    @answering_at_once()  # a sender waits, and so does the end of the run
    def _run(self) -> None:
        reader = self._reader
        try:
            if reader is not None:
                self._read_all(reader)
        except HeadwaterError as error:
            self._on_error(error)
        except Exception as error:
            log.exception("source %s broke", self._step)
            self.error = RunError(f"source {self._step!r} broke: {type(error).__name__}: {error}", step=self._step)
        finally:
            if reader is not None:
                reader.close()
                self.dropped = dropped_by(reader)  # since it was last read
            try:
                self.log.close()
            except HeadwaterError as error:
                self._on_error(error)

    def _on_error(self, error: HeadwaterError) -> None:
        self.error = self.error or RunError(f"source {self._step!r} stopped: {error}", step=self._step)

    def _read_all(self, reader: Reader) -> None:
        while not self._stopping.is_set():
            self.log.look_again()
            if self.log.nbytes > _MOST_BYTES:
                self._stopping.wait(_PATIENCE_S)
                continue
            batch = reader.read(_RECORDS, _PATIENCE_S)
            self.dropped = dropped_by(reader)
            position, state = position_of(reader), self._state(reader)
            batches = [(DEAD, letter) for letter in self._letters]
            self._letters.clear()
            if batch is not None and (batch.length or batch.watermark > NO_WATERMARK):  # a word about event time, too
                batches.append((0, batch))
            is_waiting = getattr(reader, "waits", False)  # of splits that others have to wait for
            at_end = batch is None or (self._until_idle and not batches and not is_waiting)
            if batches or at_end or state != self._last:
                if not self._safe(pack_round(batches, state, ended=at_end), sum(each.length for _, each in batches)):
                    return  # who sent it was not told that it is here, and sends it again
                self._last = state
                commit(reader, position)
            if at_end:
                return

    def _safe(self, form: bytes, records: int) -> bool:
        """Have a round safe in the log; while the disk is full that takes until there is room, or the end: False then."""
        is_appended, warned_s = False, -_QUIET_S
        while True:
            try:
                if not is_appended:
                    self.log.append(form, records=records)
                    is_appended = True
                self.log.sync()
                return True
            except InputError as error:
                if not is_full(error):
                    raise
                if time.monotonic() - warned_s > _QUIET_S:
                    warned_s = time.monotonic()
                    log.warning("source %s takes no more until there is room: %s", self._step, error)
            if self._stopping.wait(_PATIENCE_S):
                return False

    def _state(self, reader: Reader) -> Any:
        """Return what the next receiver has to know: the position, or by what to recognize what is sent again."""
        return known_of(reader) if self._recognizes else position_of(reader) if self._resumes else None

    def _reject(self, text: str, error: str) -> None:
        self._letters.append(rejection_letter(self._step, text, error))
