"""How a task gets into a checkpoint: its state as it was, and what was then still on its way to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.operators.channels import Channels
from headwater.operators.queue import Control, QueueEntry


class Saving:
    """A task on its way into one checkpoint.

    A task saves itself at the first word of a checkpoint and goes on at once. What comes by a channel after that and
    before the channel's own barrier was sent before its sender was saved: it is processed, and kept for the checkpoint too.
    """

    def __init__(self, number: int, state: dict[str, Any], pending: set[int]) -> None:
        self.number, self.state = number, state
        self.pending = pending  #: the channels whose barriers have not come
        self.in_flight: list[tuple[int, Batch | None, int]] = []  #: channel, records and watermark of what came since

    def result(self) -> dict[str, Any]:
        """Return what the checkpoint has of the task, for `Task.load`."""
        return {**self.state, "queue": [list(each) for each in self.in_flight]}


class Saver:
    """Has a task saved at the words about checkpoints that come by its channels, in line with the records.

    `freeze(number, whole)` returns what a checkpoint has of the task, its queue left out: all of its state, or only what
    has changed since the checkpoint before.
    """

    def __init__(self, freeze: Callable[[int, bool], dict[str, Any]], channels: Channels) -> None:
        self._freeze, self._channels = freeze, channels
        self.begun = -1  #: the last checkpoint that the task has begun to save itself for
        self.saving: Saving | None = None  #: that checkpoint, while something is still on its way into it
        self.last: Control | None = None  #: the last barrier, once it came by some channel
        self.saves_whole: Callable[[int], bool] = lambda number: True
        self.on_saved: Callable[[int, dict[str, Any] | Exception], None] = lambda number, result: None

    def heed(self, control: Control, channel: int, waiting: Sequence[QueueEntry]) -> Control | None:
        """Do what a word asks for, behind which these wait; return the word to send on, if any."""
        if control.kind == "last":
            self._channels.closed.add(channel)
            self.last = control
            return self.save_if_closed()
        on = self._begin(control) if control.number > self.begun else None
        if self.saving is None or self.saving.number != control.number:
            return on  # of a checkpoint that came to nothing meanwhile
        if control.kind == "snapshot":
            self._keep_waiting(waiting, control.number)
        elif control.kind == "barrier":
            self._pass_barrier(channel, control.number)
        return on

    def save_if_closed(self) -> Control | None:
        """Save the task for the last checkpoint of a run, once nothing comes by any channel; return the word to send on."""
        if self.last is None or self.saved_last or not self._channels.all_closed():
            return None
        on = self._begin(self.last)
        self._end()
        return on

    @property
    def saved_last(self) -> bool:
        """Whether the task has saved itself for the last checkpoint of a run: what it would say now, the next run says."""
        return self.last is not None and self.last.number <= self.begun

    def save_ended(self, number: int) -> dict[str, Any]:
        """Return what a checkpoint has of a task that has ended; nobody else is there any more."""
        self.begun = number
        return {**self._freeze(number, self.saves_whole(number)), "queue": []}

    def keep(self, channel: int, batch: Batch | None, watermark: int) -> None:
        """Keep what came by a channel whose barrier has not come; its end is as good as its barrier."""
        saving = self.saving
        if saving is None or channel not in saving.pending or (batch is None and watermark == NO_WATERMARK):
            return
        saving.in_flight.append((channel, batch, watermark))
        if watermark == END:
            saving.pending.discard(channel)
            self._end()

    def _begin(self, control: Control) -> Control:
        number = control.number
        self.begun, self.saving = number, None
        try:
            state = self._freeze(number, self.saves_whole(number))
        except Exception as error:  # told to who makes the checkpoint: this one comes to nothing
            self.on_saved(number, error)
        else:
            self.saving = Saving(number, state, self._channels.open())
        return control if control.kind == "last" else Control("barrier", number)

    def _keep_waiting(self, entries: Sequence[QueueEntry], number: int) -> None:
        """Keep at once what waits before a barrier, maybe for long; where there is none yet, it is kept in its turn."""
        barrier = Control("barrier", number)
        closed = {entry.channel for entry in entries if entry.control == barrier or entry.watermark == END}
        for entry in entries:
            if entry.channel not in closed:
                continue
            if entry.control is None:
                self.keep(entry.channel, entry.batch, entry.watermark)
            elif entry.control == barrier:
                self._pass_barrier(entry.channel, number)

    def _pass_barrier(self, channel: int, number: int) -> None:
        """Take note that a channel's barrier has come; it may be said twice."""
        if self.saving is not None and self.saving.number == number:
            self.saving.pending.discard(channel)
            self._end()

    def _end(self) -> None:
        saving = self.saving
        if saving is not None and not saving.pending:
            self.saving = None
            self.on_saved(saving.number, saving.result())
