"""The sink at the end of a part, where a stream leaves for another site."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.data.batch import END, Batch
from headwater.data.frames import pack
from headwater.data.schema import Schema
from headwater.deploy.bridge.buffer import LogBuffer, MemoryBuffer
from headwater.deploy.bridge.links import Attaching, Dial
from headwater.deploy.bridge.outbound import Outbound
from headwater.deploy.bridge.room import Room
from headwater.errors import InputError, RunError
from headwater.flow.endpoints import DeliverySemantics, Ledger, Refused, Transaction
from headwater.io.sifting import sifted

log = logging.getLogger(__name__)

LINGER_S = 30.0  #: for which the end of a stream waits until the other site has all of it


class Outlet:
    """Sends records, and event time with them, over a bridge.

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
    ) -> None:
        """`is_through` says whether the other site has come to its end, and so has all: its last word may have been lost."""
        self._is_through = is_through
        self.bridge, self._links, self._dial, self._folder = bridge, links, dial, folder
        self._room, self._priority, self.linger_s, self._peer = room or Room(), priority, linger_s, peer

    def open(self, schema: Schema) -> OutletWriter:
        """Start sending what comes at once."""
        buffer = MemoryBuffer() if self._folder is None else LogBuffer(self._folder, self._room.bounds())
        return OutletWriter(self, schema, self._attached(Outbound(self.bridge, buffer, parts=False, **self._given())))

    def transaction(self, schema: Schema, ledger: Ledger) -> OutletTransaction:
        """Start sending parts."""
        if ledger.after is None:
            raise InputError(f"bridge '{self.bridge}' is written by runs with checkpoints of the engine")
        buffer = LogBuffer(ledger.folder / "bridge", self._room.bounds(), after=ledger.after)
        outbound = self._attached(Outbound(self.bridge, buffer, parts=True, **self._given()))
        return OutletTransaction(self, schema, outbound, ledger.after)

    def _given(self) -> dict[str, Any]:
        return {"limit_bytes": self._room.nbytes, "priority": self._priority}

    def _attached(self, outbound: Outbound) -> Outbound:
        self._links.attach(outbound, self._dial, name=self._peer)
        return outbound

    def leave(self, outbound: Outbound, *, ended: bool) -> bool:
        """Hang up; where the stream has ended, once the other site has all of it. False if it has not in time."""
        until_s = time.monotonic() + (self.linger_s if ended else 0.0)
        while not (done := outbound.is_done() or self._is_through()) and time.monotonic() < until_s:
            time.sleep(0.01)
        self._links.detach(outbound)
        outbound.close()
        return done

    def __str__(self) -> str:
        return f"bridge {self.bridge}"


class _Sender:
    """What both ways of sending have."""

    def __init__(self, outlet: Outlet, schema: Schema, outbound: Outbound) -> None:
        self._outlet, self._outbound = outlet, outbound
        self._sifts = any(kind == "any" for _, kind in schema.fields)  #: whether a value may have no form as bytes
        self._ended = False

    def write(self, batch: Batch) -> Refused | None:
        """Send records; those that have no form outside the process are refused."""
        sent, refused = Batch(batch.columns, batch.length, batch.stamps), None  # how far time has come is told apart
        if self._sifts:
            _, sent, refused = sifted(sent, pack)
        self._outbound.put(sent)
        return refused

    def advance(self, watermark: int) -> None:
        """Tell the other site how far event time has come."""
        self._ended = watermark == END
        self._outbound.put(Batch.of_watermark(watermark))

    @property
    def throttle(self) -> Callable[[float], None]:
        """What is told how much of the room is taken."""
        return self._outbound.throttle

    @throttle.setter
    def throttle(self, told: Callable[[float], None]) -> None:
        self._outbound.throttle = told

    def account(self) -> dict[str, Any]:
        """Return what became of the records."""
        return self._outbound.account()


class OutletWriter(_Sender):
    """Sends at once."""

    def close(self) -> None:
        """Wait for the other site to have the rest; what is kept in memory alone is lost if it does not come for it."""
        outbound = self._outbound
        outbound.gather()
        is_kept = self._outlet._folder is not None
        if not self._outlet.leave(outbound, ended=self._ended or not is_kept) and not is_kept:
            raise InputError(
                f"bridge '{self._outlet.bridge}': the other site did not take all within {self._outlet.linger_s:g} s",
                records=outbound.unsafe_records(),
            )


class OutletTransaction(_Sender, Transaction):
    """Sends what a checkpoint has."""

    def __init__(self, outlet: Outlet, schema: Schema, outbound: Outbound, after: int) -> None:
        super().__init__(outlet, schema, outbound)
        self._committed = after

    @property
    def committed(self) -> int:
        """The last part that may be sent."""
        return self._committed

    def prepare(self, number: int) -> None:
        """End a part, safe on disk."""
        self._outbound.prepare(number)

    def commit(self, number: int) -> None:
        """Send the parts up to this one."""
        self._outbound.commit(number)
        self._committed = max(self._committed, number)

    def rollback(self) -> None:
        """Refuse: the engine opens it anew after an earlier part, and no other runner writes to one."""
        raise RunError(f"bridge {self._outlet.bridge} is written by the engine alone; run this part on the engine")

    def close(self) -> None:
        """Leave; once the stream has ended, wait for the other site to have all of it."""
        if not self._outlet.leave(self._outbound, ended=self._ended) and self._ended:
            log.warning("bridge %s: what the other site has not taken waits for the next run", self._outlet.bridge)
