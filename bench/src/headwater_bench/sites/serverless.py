"""The same flows as best-effort serverless at the cheapest edge, which takes them all: nothing is reserved, none moves.

The edge is a control group with as many cores as it had lent to promises, and SCAN runs in it too: first not at all, then
wanting what it took from the promised flows, then more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from headwater.deploy.local.quota import Quotas
from headwater.processes import family
from headwater.rate import cgroups
from headwater_bench.experiments.rates.lap import Lap, home, started
from headwater_bench.sites.flows import Promised
from headwater_bench.sites.world import SCAN

_SETTINGS: dict[str, float | str] = {"alert_s": 0.1, "interval_s": 1.0}


def played(flows: Sequence[Promised], lasts_s: float, cores: float, scans: Sequence[float]) -> dict[str, Any] | None:
    """Run the flows for as many acts as SCAN has shares, each so many cores more; None where nothing can bound them."""
    groups = cgroups.find()
    if groups is None:
        return None
    seconds = round(lasts_s * len(scans))
    laps = [
        Lap(
            flow.name,
            "serverless",
            [(0.0, flow.contract.rate_hz)],
            seconds,
            bound_s=flow.contract.latency_s or 0.0,
            settings=_SETTINGS,
        )
        for flow in flows
    ]
    with ExitStack() as over:
        quotas = Quotas(groups)
        over.callback(quotas.close)
        at = over.enter_context(home())
        processes = over.enter_context(started(laps, at))
        for each in processes:
            each.ready()  # before the edge is as small as it is: nobody is measured by how it starts
        for each in processes:
            for pid in family(each.pid):
                quotas.bound(pid, 0, cores)
            each.go()
        for number, share in enumerate(scans):
            if share:
                scan = subprocess.Popen([sys.executable, "-S", "-c", SCAN, f"{min(share, 0.95):g}"])
                over.callback(_ended, scan)
                quotas.bound(scan.pid, 0, cores)
            if number < len(scans) - 1:
                time.sleep(lasts_s)
        results = [each.result() for each in processes]
    windows = sum(row["windows"] for row in results)
    return {
        "kept": round(sum(row["kept_windows"] for row in results) / max(1, windows), 4),
        "windows": windows,
        "rate_kept": {row["flow"]: row["rate_kept"] for row in results},
        "arrived": {row["flow"]: row["arrived"] for row in results},
        "act_s": lasts_s,
    }


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
