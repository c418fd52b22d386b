"""What happens to the sites while steps move: somebody is killed with SIGKILL, or a link is cut."""

from __future__ import annotations

import time
from random import Random

from headwater.deploy.local.cuts import How
from headwater.deploy.token import COORDINATOR
from headwater_bench.moves.sites import SITES, SPARK, Farm

#: what is said vanishes, or connections are reset
LINK_FAULTS: dict[str, How] = {"silent link": "silent", "reset link": "reset"}
FAULTS = ("source site", "target site", "other site", "coordinator", *LINK_FAULTS)
_CUT_S = 0.5, 4.5  #: for which a link is cut: each end waits 2 s for a word, and may notice, or not
_LATEST_S = 2.0  #: after a move was begun
_CHANGE_S = 0.4  #: within which the parts change over, on a machine that is not too busy
_SPARK_CHANGE_S = 4.0  #: and where one of them is on Spark: a micro-batch ends, and what Spark has is read back
_WARM_S = 30.0  #: for the new parts to have their processes


def spark_site(source: str, target: str) -> str:
    """Return the fault that is the end of the site on Spark, of a move there or back; nothing for a move elsewhere."""
    return {source: "source site", target: "target site"}.get(SPARK, "")


def strike(farm: Farm, fault: str, source: str, target: str, chance: Random) -> None:
    """Have something happen at a random moment of a move; each second time while the parts change over, which is short."""
    is_amid = chance.random() < 0.5
    if is_amid:
        farm.wait_until_cut(_WARM_S)
    change_s = _SPARK_CHANGE_S if SPARK in (source, target) else _CHANGE_S
    time.sleep(chance.random() * (change_s if is_amid else _LATEST_S))
    if fault == "coordinator":
        farm.kill_coordinator()
    elif fault in LINK_FAULTS:
        site = chance.choice((source, target))
        other = chance.choice([each for each in (*SITES, COORDINATOR, None) if each != site])
        farm.cut(site, other, LINK_FAULTS[fault], chance.uniform(*_CUT_S))
    else:
        other = next(site for site in SITES if site not in (source, target))
        farm.kill_site({"source site": source, "target site": target, "other site": other}[fault])
