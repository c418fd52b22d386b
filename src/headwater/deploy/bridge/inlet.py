"""The source at the beginning of a part, where a stream comes in from another site."""

from __future__ import annotations

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
    ) -> None:
        self.bridge, self._schema, self._links, self._dial = bridge, schema, links, dial
        self._window, self._peer = window, peer

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
        inbound = Inbound(self.bridge, window=self._window, **(position or {}))
        self._links.attach(inbound, self._dial, name=self._peer)
        return InletReader(inbound, self._links)

    def __str__(self) -> str:
        return f"bridge {self.bridge}"


class InletReader:
    """An open inlet."""

    def __init__(self, inbound: Inbound, links: Attaching) -> None:
        self._inbound, self._links = inbound, links

    @property
    def position(self) -> dict[str, Any]:
        """What was handed out: of which life of the sender, the number behind it, and whether that was the end."""
        arrivals = self._inbound.arrivals
        return {"life": self._inbound.machine.life, "next": arrivals.handed, "ended": arrivals.ended}

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
        self._links.detach(self._inbound)
