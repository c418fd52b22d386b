"""What a site that runs its parts on Spark promises: whole cores of its machine, to a Spark that the part has for itself.

Of a cluster it can promise nothing: its work is done by processes that others start, mostly on other machines, of which
the ledger here knows nothing.
"""

from __future__ import annotations

import math
import re

from headwater.deploy.part import Promise
from headwater.deploy.site.resources import Site
from headwater.rate.micro_batches import why_not

ELSEWHERE = "its master is a cluster, of which no cores can be held from here"


def is_elsewhere(master: str) -> bool:
    """Say whether a master has the work done by processes that the part does not start itself.

    >>> is_elsewhere("local[2]"), is_elsewhere("spark://head:7077")
    (False, True)
    """
    return re.fullmatch(r"local(\[.*\])?", master) is None


def refusal_on_spark(site: Site, master: str, promise: Promise, *pids: int | None) -> str:
    """Say why Spark cannot be promised a part here, nothing where it can; what is held for `pids` is for it already."""
    if why := why_not(promise.contract):
        return f"it runs its parts on Spark: {why}"
    if is_elsewhere(master):
        return (
            "" if promise.best_effort else f"{ELSEWHERE}; --best-effort runs it there all the same, and counts windows"
        )
    cores = max(1, math.ceil(promise.cores))
    refusal = site.shortage(float(cores), *pids)
    whole = f"Spark has whole cores, {cores} where the engine would need {promise.cores:.2f}"
    return "" if refusal is None else f"{refusal} ({whole})"
