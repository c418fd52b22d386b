"""The sink at the end of a part, where a stream leaves for other sites."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.frames import pack, unpack_frame
from headwater.data.schema import Schema
from headwater.deploy.bridge.arrivals import SILENT
from headwater.deploy.bridge.buffer import LogBuffer, MemoryBuffer
from headwater.deploy.bridge.links import Attaching, Dial
from headwater.deploy.bridge.outbound import Outbound, Sender
from headwater.deploy.bridge.room import Room
from headwater.errors import InputError
from headwater.flow.endpoints import DeliverySemantics, Ledger, Refused, Transaction
from headwater.io.sifting import sift

log = logging.getLogger(__name__)

LINGER_S = 30.0  #: for which the end of a stream waits until the other site has all of it


@dataclass(frozen=True, slots=True)
class Way:
    """The bridge to one of the sites that a stream goes to."""

    bridge: str
    dial: Dial | None = None
    is_through: Callable[[], bool] = lambda: False
    soon: bool = False  #: what goes there is kept, and not sent before it is said where to


class Outlet:
    """Sends records, and event time with them, over a bridge, or over several where a stream goes to several sites.

    In a run with checkpoints it sends what a checkpoint has, so that nothing comes twice or is missing, whoever crashes. In
    one without, records go at once; they are kept in memory, or in `folder` where they also outlive the process.
    """

    hears_time = True
    delivery: DeliverySemantics = "transactional"

    def __init__(
        self,
        bridge: str,
        links: Attaching,
        dial: Dial | None = None,
        *,
        folder: str | Path | None = None,
        room: Room | None = None,
        priority: int = 0,
        linger_s: float = LINGER_S,
        peer: str | None = None,
        is_through: Callable[[], bool] = lambda: False,
        ways: Callable[[], Mapping[str, Way]] | None = None,
    ) -> None:
        """`is_through` says whether the other site has come to its end, and so has all: its last word may have been lost.

        `ways` says where the stream goes at present, by the names in the sites' certificates; `look_anew` asks it again.
        """
        self.bridge, self.links, self._folder = bridge, links, folder
        self._room, self._priority, self.linger_s = room or Room(), priority, linger_s
        self.ways = ways or (lambda: {peer or "": Way(bridge, dial, is_through)})
        self._open: list[Fan] = []
        self._dropped = 0  #: records, by those that are over

    def open(self, schema: Schema) -> OutletWriter:
        """Start sending what comes at once."""
        bounds = self._room.bounds()
        buffer = MemoryBuffer(bounds.nbytes) if self._folder is None else LogBuffer(self._folder, bounds)
        return OutletWriter(self, schema, self._fanned(Outbound(buffer, parts=False, **self._options())))

    def transaction(self, schema: Schema, ledger: Ledger) -> OutletTransaction:
        """Start sending parts."""
        buffer = LogBuffer(ledger.folder / "bridge", self._room.bounds(), after=ledger.after, parts=True)
        fan = self._fanned(Outbound(buffer, parts=True, **self._options()))
        ended = bool(buffer.last) and unpack_frame(buffer.last).watermark == END
        return OutletTransaction(self, schema, fan, buffer.part, ended=ended)

    @property
    def is_kept(self) -> bool:
        """Whether what is sent outlives the process, also in a run without checkpoints."""
        return self._folder is not None

    def look_anew(self) -> None:
        """Send to where the stream goes by now: a site that is new gets all that is kept, or from where it says."""
        for fan in self._open:
            fan.look()

    def _options(self) -> dict[str, Any]:
        return {"limit_bytes": self._room.nbytes, "priority": self._priority, "holds": self._room.holds}

    def _fanned(self, outbound: Outbound) -> Fan:
        fan = Fan(self, outbound)
        fan.look()
        self._open.append(fan)
        return fan

    def account(self) -> dict[str, int]:
        """Return what waits, and was dropped, of all that it sends at present."""
        accounts = [fan.outbound.account() for fan in self._open]
        totals = {what: sum(each[what] for each in accounts) for what in ("messages_waiting", "bytes_kept", "dropped")}
        return totals | {"dropped": totals["dropped"] + self._dropped}

    def left(self, fan: Fan) -> None:
        """Take note that it is written no more."""
        self._open = [each for each in self._open if each is not fan]
        self._dropped += fan.outbound.buffer.dropped

    def __str__(self) -> str:
        return f"bridge {self.bridge}"


class Fan:
    """An outlet that is open, with the senders to all sites that its stream goes to at present."""

    def __init__(self, outlet: Outlet, outbound: Outbound) -> None:
        self._outlet, self.outbound = outlet, outbound
        self.senders: dict[str, tuple[Way, Sender]] = {}
        self._connected: set[str] = set()  #: those of them that send
        self._looking = threading.Lock()
        self._is_over = False

    def look(self) -> None:
        """Have a sender to each site that there should be, and to no other; new ones first, so that all is kept for them."""
        with self._looking:
            if self._is_over:
                return
            ways, links = self._outlet.ways(), self._outlet.links
            for peer, way in ways.items():
                sender = self.senders[peer][1] if peer in self.senders else self.outbound.sender(way.bridge)
                self.senders[peer] = way, sender
                if not way.soon and peer not in self._connected:
                    self._connected.add(peer)
                    links.attach(sender, way.dial, name=peer or None)
            for peer in [name for name in self.senders if name not in ways]:
                _, sender = self.senders.pop(peer)
                self._hang_up(peer, sender)
                self.outbound.drop(sender)

    def _hang_up(self, peer: str, sender: Sender) -> None:
        if peer in self._connected:
            self._connected.discard(peer)
            self._outlet.links.detach(sender)

    def leave(self, *, ended: bool) -> bool:
        """Hang up; where the stream has ended, once the other sites have all of it. False if they have not in time."""
        until_s = time.monotonic() + self._outlet.linger_s
        while not (has_all := not ended or self._have_all()) and time.monotonic() < until_s:
            time.sleep(0.01)
        with self._looking:
            self._is_over = True
            for peer, (_, sender) in self.senders.items():
                self._hang_up(peer, sender)
        self._outlet.left(self)
        self.outbound.close()
        return has_all

    def _have_all(self) -> bool:
        senders = list(self.senders.values())
        return all(self.outbound.has_all(sender) or way.is_through() for way, sender in senders)


class _Writing:
    """What both ways of sending have."""

    def __init__(self, outlet: Outlet, schema: Schema, fan: Fan) -> None:
        self._outlet, self._fan, self._outbound = outlet, fan, fan.outbound
        self._sifts = any(kind == "any" for _, kind in schema.fields)  #: whether a value may have no form as bytes
        self._ended = False
        self._watermark = NO_WATERMARK

    def write(self, batch: Batch) -> Refused | None:
        """Send records; those that have no form outside the process are refused."""
        part, refusals = Batch(batch.columns, batch.length, batch.stamps), None  # how far time has come is told apart
        if self._sifts:
            _, part, refusals = sift(part, pack)
        if part.length:
            self._outbound.put(part)
        return refusals

    def advance(self, watermark: int) -> None:
        """Tell the other site how far event time has come."""
        self._ended = watermark == END
        self._watermark = watermark
        self._outbound.put(Batch.of_watermark(watermark))

    def idle(self, idle: bool) -> None:
        """Tell the other site that nobody needs to wait for the stream, or again: how far its time has come says that."""
        word = SILENT if idle else Batch.of_watermark(self._watermark)
        if idle or self._watermark > NO_WATERMARK:
            self._outbound.put(word)

    @property
    def throttle(self) -> Callable[[float], None]:
        """What is told how much of the room is taken."""
        return self._outbound.throttle

    @throttle.setter
    def throttle(self, notify: Callable[[float], None]) -> None:
        self._outbound.throttle = notify

    def account(self) -> dict[str, Any]:
        """Return what became of the records."""
        return self._outbound.account()


class OutletWriter(_Writing):
    """Sends at once."""

    def close(self) -> None:
        """Wait for the other site to have the rest; what is kept in memory alone is lost if it does not come for it."""
        outbound = self._outbound
        outbound.gather()
        is_kept = self._outlet.is_kept
        if not self._fan.leave(ended=self._ended or not is_kept) and not is_kept:
            raise InputError(
                f"bridge '{self._outlet.bridge}': the other site did not take all within {self._outlet.linger_s:g} s",
                records=outbound.unsafe_records(),
            )


class OutletTransaction(_Writing, Transaction):
    """Sends what a checkpoint has, or a micro-batch of Spark's."""

    def __init__(self, outlet: Outlet, schema: Schema, fan: Fan, after: int, *, ended: bool) -> None:
        super().__init__(outlet, schema, fan)
        self._committed = self._prepared = after
        self._ended = self._ended_before = ended  #: with the part before the one that is being written

    @property
    def committed(self) -> int:
        """The last part that may be sent."""
        return self._committed

    def prepare(self, number: int) -> None:
        """End a part, safe on disk."""
        self._outbound.prepare(number)
        self._prepared, self._ended_before = number, self._ended

    def commit(self, number: int) -> None:
        """Send the parts up to this one."""
        if number > self._prepared:
            self.prepare(number)
        self._outbound.commit(number)
        self._committed = max(self._committed, number)

    def rollback(self) -> None:
        """Forget what was written since the last part ended: another attempt follows."""
        self._outbound.rollback()
        self._ended = self._ended_before

    def close(self) -> None:
        """Leave; once the stream has ended, wait for the other site to have all of it."""
        if not self._fan.leave(ended=self._ended) and self._ended:
            log.warning("bridge %s: what the other site has not taken waits for the next run", self._outlet.bridge)
