"""The source at the beginning of a part, where a stream comes in from another site."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.deploy.bridge.inbound import WINDOW, Inbound
from headwater.deploy.bridge.links import Attaching, Dial
from headwater.errors import InputError
from headwater.flow.endpoints import Reject, Resume
from headwater.flow.identity import Identity


class Inlet:
    """Brings records in that another site sends, and event time with them.

    The sender keeps them until they are in a checkpoint here, or, in a run without checkpoints, in the flow's hands.
    """

    tells_time = True
    once = True
    resume: Resume = "position"

    def __init__(
        self,
        bridge: str,
        schema: Schema,
        links: Attaching,
        dial: Dial | None = None,
        *,
        window: int = WINDOW,
        peer: str | None = None,
        way: Callable[[], tuple[Dial | None, str | None]] | None = None,
    ) -> None:
        """`way` says whom to dial at present, and for whom its certificate must be; `look_anew` asks it again."""
        self.bridge, self._schema, self._links, self._window = bridge, schema, links, window
        self._way = way or (lambda: (dial, peer))
        self._open: list[InletReader] = []

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self._schema

    @property
    def identity(self) -> Identity:
        """The name of the bridge: the address of a site may change."""
        return {"bridge": self.bridge}

    def open(self, reject: Reject, position: dict[str, Any] | None = None) -> InletReader:
        """Start receiving, behind what a checkpoint has."""
        inbound = Inbound(self.bridge, self._schema, window=self._window, **(position or {}))
        reader = InletReader(inbound, self._links)
        reader.come_by(*self._way())
        self._open = [*(each for each in self._open if not each.closed), reader]
        return reader

    def look_anew(self) -> None:
        """Receive from where the stream comes from by now; who sends goes on behind what is here."""
        for reader in self._open:
            reader.come_by(*self._way())

    def __str__(self) -> str:
        return f"bridge {self.bridge}"


class InletReader:
    """An open inlet."""

    def __init__(self, inbound: Inbound, links: Attaching) -> None:
        self._inbound, self._links = inbound, links
        self._from: tuple[bool, str | None] | None = None  #: whether the sender is dialed, and who it is
        self._lock = threading.Lock()
        self.closed = False

    def come_by(self, dial: Dial | None, name: str | None) -> None:
        """Have the connection made with a sender, unless it is the one that it is made with."""
        with self._lock:
            if self.closed or self._from == (dial is not None, name):
                return
            if self._from is not None:
                self._links.detach(self._inbound)
            self._from = dial is not None, name
            self._links.attach(self._inbound, dial, name=name)

    @property
    def position(self) -> dict[str, Any]:
        """What was handed out: of which life of the sender, the number behind it, whether that was the end, or silence."""
        arrivals = self._inbound.arrivals
        flags = {"ended": arrivals.ended, "idle": arrivals.idle}
        return {"life": self._inbound.machine.life, "next": arrivals.handed, **flags}

    @property
    def idle(self) -> bool:
        """Whether nobody needs to wait for the stream: the sender has said so, and nothing has come since."""
        return self._inbound.arrivals.idle

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records, none if nothing came in time, or None at the end."""
        try:
            return self._inbound.read(limit, timeout_s)
        except ValueError as why:
            raise InputError(str(why)) from None

    def let_go(self) -> None:
        """Have a read that waits for records return."""
        self._inbound.let_go()

    def commit(self, position: dict[str, Any]) -> None:
        """Let the sender forget what is safe here."""
        self._inbound.commit(position["next"])

    def close(self) -> None:
        """Hang up, once the sender knows what is safe."""
        with self._lock:
            self.closed = True
            self._links.detach(self._inbound)
