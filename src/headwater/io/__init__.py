"""Sources and sinks, one system per file; `memory` serves tests and documentation."""

from headwater.io.memory import Collect, Discard, Failing, Items

__all__ = ["Collect", "Discard", "Failing", "Items"]
