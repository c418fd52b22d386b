"""The channels of a task: how far event time has come by each, and which of them nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.data.batch import END, NO_WATERMARK
from headwater.operators.execution_graph import Instance
from headwater.operators.operator import Operator
from headwater.operators.queue import FROM_CLOCK, Control


class Channels:
    """What is known of each channel by which records come to a task; its time is that of the last, idle ones left out.

    `teaching` are channels that only teach the step what all its instances are told: their time never matters.
    """

    def __init__(self, ports: Sequence[int], *, sets_time: bool, teaching: frozenset[int] = frozenset()) -> None:
        self.ports = ports  #: which input of the step each channel belongs to
        self._teaching = teaching
        self.watermarks = [NO_WATERMARK] * len(ports)
        self.idle: set[int] = set()  #: channels whose time nobody waits for, since nothing comes by them
        self.closed: set[int] = set()  #: channels by which nothing will come: they have ended, or had the last barrier
        self._sets_time = sets_time  #: a step that reads event time goes by what comes to it

    def advance(self, channel: int, watermark: int) -> None:
        """Move one channel's time on; it never moves back."""
        self.watermarks[channel] = max(self.watermarks[channel], watermark)
        if watermark == END:
            self.closed.add(channel)
            self.idle.discard(channel)

    def earliest(self) -> int:
        """Return the time that no channel is behind, those left out that are idle or only teach; the end is that of all."""
        if not self.idle and not self._teaching:
            return min(self.watermarks)
        out = self.idle | self._teaching
        earliest = min((at for channel, at in enumerate(self.watermarks) if channel not in out), default=NO_WATERMARK)
        return NO_WATERMARK if earliest == END and min(self.watermarks) < END else earliest

    def earliest_of(self, port: int) -> int:
        """Return the time that no channel of an input is behind."""
        return min(at for at, its in zip(self.watermarks, self.ports, strict=True) if its == port)

    def open(self) -> set[int]:
        """Return the channels by which something may still come."""
        return {channel for channel, at in enumerate(self.watermarks) if at != END} - self.closed

    def all_closed(self) -> bool:
        """Say whether nothing will come by any channel."""
        return len(self.closed) == len(self.ports)

    def wake(self, channel: int) -> None:
        """Wait for the time of a channel again, since something has come by it."""
        self.idle -= self._every() if self._sets_time else {channel}

    def heed(self, control: Control, channel: int) -> bool:
        """Wait no more, or again, for the time of a channel; return whether that word counts here."""
        if self._sets_time and control.number != FROM_CLOCK:
            return False
        if control.kind == "active" or self.watermarks[channel] == END:
            self.idle.discard(channel)
        else:
            self.idle |= self._every() - self.closed if self._sets_time else {channel}
        return True

    def all_quiet(self) -> bool:
        """Say whether nobody is left to wait for: whoever comes after need not wait for this task either."""
        out = self.idle | self._teaching
        return bool(self.idle) and all(at == END or number in out for number, at in enumerate(self.watermarks))

    def save(self) -> dict[str, Any]:
        """Return what `load` takes."""
        return {"watermarks": list(self.watermarks), "idle": sorted(self.idle)}

    def load(self, state: dict[str, Any], *, ended: bool, ends_again: bool = True) -> None:
        """Go on from what was saved; where it `ends_again`, whoever has ended may send what was not there before it does."""
        self.watermarks = [NO_WATERMARK if at == END and ends_again else at for at in state["watermarks"]]
        self.closed = {channel for channel, at in enumerate(self.watermarks) if at == END}
        self.idle = set() if ended else set(state.get("idle", ()))

    def _every(self) -> set[int]:
        return set(range(len(self.ports)))


def teaching_channels(instance: Instance, operator: Operator | None) -> frozenset[int]:
    """Return the channels by which a step that any instance could be learns what all of them learn."""
    inputs = instance.step.inputs
    if operator is None or not operator.replicable or all(edge.grouping == "all" for edge in inputs):
        return frozenset()
    ports = instance.channel_ports
    return frozenset(channel for channel, port in enumerate(ports) if inputs[port].grouping == "all")
