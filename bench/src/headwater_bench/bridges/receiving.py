"""The receiver of `bench bridge`, a process of its own: `python -m headwater_bench.bridges.receiving CERTIFICATES SENT`.

Its first line is the port at which it listens, its last what it has received, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from headwater.clock import now_ns
from headwater.data.batch import CREATED
from headwater.deploy import Identity, Inlet, Links
from headwater.histogram import Histogram
from headwater_bench.bridges.records import BRIDGE, RECEIVER, SCHEMA, Checked

_LIMIT = 8000  #: records that are taken at once, at most
_SAMPLE_S = 0.02


def received(links: Links, sent: int) -> dict[str, Any]:
    """Take what comes until the end, and say what it was and how old."""
    reader = Inlet(BRIDGE, SCHEMA, links).open(lambda text, error: None)
    checked, latency = Checked(), Histogram()
    came: list[tuple[float, int]] = []  #: now and then, how many had come by when
    first_s = last_s = 0.0
    while (batch := reader.read(_LIMIT, 1.0)) is not None:
        if not batch.length:
            continue
        last_s = time.monotonic()
        first_s = first_s or last_s
        latency.add(now_ns() - batch.stamps[:, CREATED])
        checked.take(batch)
        if not came or last_s - came[-1][0] > _SAMPLE_S:
            came.append((last_s, checked.records))
        reader.commit(reader.position)
    reader.commit(reader.position)
    reader.close()
    return {
        **checked.account(sent),
        "records": checked.records,
        "first_s": first_s,
        "last_s": last_s,
        "p50_ms": round(latency.percentile(50) / 1e6, 3),
        "p99_ms": round(latency.percentile(99) / 1e6, 3),
        "came": came,
    }


def main() -> None:
    """Listen, say where, receive."""
    identity = Identity.of(Path(sys.argv[1]), RECEIVER)
    links = Links(("127.0.0.1", 0), server=identity.server(), client=identity.client())
    print(links.port, flush=True)
    answer = received(links, int(sys.argv[2]))
    links.close()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
