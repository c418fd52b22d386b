"""A promised flow as a process: takes a rate, turns of a busy loop per record, cores, seconds; prints its promise."""

import json
import sys

from headwater import Contract, Flow, Profile, StepProfile, io, rate
from headwater.flow.profile import Demand, StepDemand


def flow(rate_hz: float, turns: int) -> Flow:
    def burn(record):
        for _ in range(turns):
            pass
        return record

    return burning(rate_hz, burn)


def burning(rate_hz, burn) -> Flow:
    """Return a flow of numbers at a rate, each of which costs what a function makes it cost."""
    made = Flow("burning")
    source = io.Generate(lambda n: {"n": n}, {"n": int}, rate=rate_hz)
    made.read("numbers", source).map("burn", burn).write("out", io.Discard())
    return made


def demand(cores: float) -> Profile:
    """A profile by which any rate near 1,000/s wants about so many cores."""
    per_record = cores / 1.4 / 1000
    steps = {
        "numbers": StepDemand(1.0, 1, 0.0, 0.0, 0.0, 0.0),
        "burn": StepDemand(1.0, 1, 1.0, 0.001, per_record, 0.0),
        "out": StepDemand(1.0, 1, 1.0, 0.0, 0.0, 0.0),
    }
    return Profile("burning", "here", {name: StepProfile(0.0) for name in steps}, demand=Demand(1000, 0.01, 0.0, steps))


def main() -> None:
    offered_hz, turns, cores, seconds = (float(each) for each in sys.argv[1:5])
    above = sys.argv[5] if len(sys.argv) > 5 else "best effort"
    realtime = "realtime" in sys.argv[6:]
    running = rate.start(
        flow(offered_hz, int(turns)),
        Contract(1000.0, 0.2, above=above),
        profile=demand(cores),
        best_effort=True,
        trial_s=0,
        seconds=seconds,
        realtime=realtime,
    )
    print("started", flush=True)
    report = running.wait()
    print(json.dumps({**report.extra["promise"], "shed": report.shed, "seconds": report.seconds}), flush=True)


if __name__ == "__main__":
    main()
