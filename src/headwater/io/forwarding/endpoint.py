"""A sink behind a network that may be cut, described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headwater.data.schema import Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Sink, check_sink, delivery_of
from headwater.flow.places import Place
from headwater.io.amounts import bytes_per_second, nbytes
from headwater.io.forwarding.writer import ForwardWriter
from headwater.io.log import Bounds

Full = Literal["hold", "drop oldest", "drop lowest"]
Order = Literal["oldest", "newest"]


@dataclass(frozen=True)
class Forward:
    """Has records wait in a log on disk until another sink takes them; made by `forward`, which says what is what."""

    sink: Sink
    folder: str | Path
    bounds: Bounds
    order: Order
    rate: int | None  #: bytes per second
    priority: str | None
    linger_s: float
    is_its_turn: Callable[[int], bool] = lambda position: True  #: whether an entry of the log may leave

    def when(self, is_its_turn: Callable[[int], bool]) -> Forward:
        """Return the same, of which each entry leaves when it is its turn."""
        return replace(self, is_its_turn=is_its_turn)

    @property
    def delivery(self) -> DeliverySemantics:
        """What the sink behind makes of records that come twice, as a few may after a crash; transactions end at the log."""
        return "idempotent" if delivery_of(self.sink) == "idempotent" else "neither"

    def open(self, schema: Schema) -> ForwardWriter:
        """Start taking records, whether the sink behind is there or not; what waits from an earlier run is sent too."""
        self.check_write(schema)
        return ForwardWriter(
            self.sink,
            schema,
            Path(self.folder),
            self.bounds,
            newest_first=self.order == "newest",
            rate=self.rate,
            priority=self.priority,
            linger_s=self.linger_s,
            is_its_turn=self.is_its_turn,
        )

    def check_write(self, schema: Schema) -> None:
        """Raise what the sink behind has to say against these columns, and what there is to say of the priority."""
        if self.priority is not None:
            kind = schema.type_of(self.priority, what=f"the priority of {self}")
            if kind != "int":
                raise FlowError(f"the priority of {self} is a column of whole numbers; {self.priority!r} is {kind}")
        check_sink(self.sink, schema)

    def claims(self, *, writing: bool) -> Place:
        """Return the folder of the log."""
        return Place.of_file(self.folder)

    def __str__(self) -> str:
        return f"{self.sink} by way of {self.folder}"


def forward(
    sink: Sink,
    folder: str | Path,
    *,
    bytes: str | int = "1 GB",
    age: Duration | None = None,
    full: Full = "hold",
    order: Order = "oldest",
    rate: str | int | None = None,
    priority: str | None = None,
    linger: Duration = "10 s",
) -> Forward:
    """Write to a sink by way of a log on disk, so that a cut uplink or a restart costs no record.

    At `bytes` the flow is held until there is room, or the oldest records are dropped, or those with the least number in the
    column `priority` (0 to 254); what is older than `age` is dropped. All that is dropped is counted in the report. `rate`
    bounds how fast records leave, such as "1 MB/s"; with `order="newest"`, what is new leaves before what has waited. When
    the flow ends, what still waits is sent for `linger` at most, and the rest by the next run with this folder. After a
    crash a few records may come twice.
    """
    for name, value, choices in (
        ("full", full, ("hold", "drop oldest", "drop lowest")),
        ("order", order, ("oldest", "newest")),
    ):
        if value not in choices:
            raise FlowError(f"{name} is one of {listed(choices)}; got {value!r}{suggestion(str(value), choices)}")
    if (full == "drop lowest") != (priority is not None):
        raise FlowError("full='drop lowest' goes with priority=, the column that says what is dropped first")
    bounds = Bounds(nbytes(bytes), None if age is None else microseconds(age) / 1e6, full)
    most = None if rate is None else bytes_per_second(rate)
    return Forward(sink, folder, bounds, order, most, priority, microseconds(linger) / 1e6)
