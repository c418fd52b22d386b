"""A flow with state of all kinds as a promise of so many cores, in a process: prints its lanes, then its promise."""

import json
import sys
from pathlib import Path

from promised import demand

from headwater import Contract, rate

sys.path.insert(0, str(Path(__file__).parent.parent))

from kept_flow import flow


def main() -> None:
    folder, cores, rate_hz, *checkpoint = sys.argv[1:]
    kept = {"checkpoint": checkpoint[0], "every": "200 ms"} if checkpoint else {}
    running = rate.start(
        flow(Path(folder), rate=float(rate_hz)),
        Contract(1000.0, 1.0),
        profile=demand(float(cores)),
        best_effort=True,
        trial_s=0,
        **kept,
    )
    print(json.dumps(list(running.processes())), flush=True)
    report = running.wait()
    print(json.dumps(report.extra["promise"]), flush=True)


if __name__ == "__main__":
    main()
