"""A flow dearer than its profile says asks for the most that two lanes may have, and then for what it is offered.

Prints what it asked for, one after the other, and its promise.
"""

import json
import time

from promised import burning, demand

from headwater import Contract, rate
from headwater.rate.refused import NotPromisedError

TAKES_S = 1.1e-3  #: of a processor, each record
PROFILE = demand(1.2)  #: of 0.86 ms
FIRST_HZ = 1300.0
_ASKED = 6


def burn(record):
    until_s = time.thread_time() + TAKES_S
    while time.thread_time() < until_s:
        pass
    return record


def main() -> None:
    asked, running = [FIRST_HZ], None
    while running is None and len(asked) <= _ASKED:
        contract = Contract(asked[-1], 1.0)
        try:
            running = rate.start(
                burning(asked[-1], burn), contract, profile=PROFILE, best_effort=True, trial_s=1.0, seconds=3.0
            )
        except NotPromisedError as no:
            asked.append(no.nearest.offered_hz)
    report = running.wait()
    print(json.dumps({"asked": asked, "measured": running.admitted.measured, **report.extra["promise"]}), flush=True)


if __name__ == "__main__":
    main()
