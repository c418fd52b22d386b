"""What a second lane gains: RIoTBench's flows at full speed in one lane and in two, source and sinks counted in.

Before that both are given the same messages, and must say the same of them. On a machine that others use, what time on
the wall says is mostly about them; so processor time is told too: that of one lane over that of the busier of two is what
two cores of one's own would gain. And what the machine has to give is told: two programs with one lane each, side by side,
over one of them alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from headwater import engine, io
from headwater.engine.memory import keep_freed, share_arenas
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import Sink
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.experiments.trial import machine
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats

#: those with a row for each message are as RIoTBench has them but for that, and give the same results
FLOWS = ("etl", "stats", "pred", "etl wide", "stats wide")
_COMPARED = 20_000  #: messages that both must say the same of
_TRIED = 100_000  #: messages by which the speed of a flow is estimated
#: how long one lane takes for a lap: lanes copy the memory that they use when they part, and do not end with the same block
_QUICK_S, _LAP_S = 3.0, 15.0


@dataclass(frozen=True, slots=True)
class Lap:
    """One run at full speed."""

    flow: str
    lanes: int
    messages: int
    rate_hz: float
    #: processor time of a message, in this process and in the one forked from it
    own_us: float
    forked_us: float


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    messages: int | None = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """Run each flow in one lane and in two, by turns."""
    names = list(flows or FLOWS)
    for name in names:
        if name not in FLOWS:
            raise RunError(f"there is no flow {name!r}; known are {listed(FLOWS)}{suggestion(name, FLOWS)}")
    share_arenas()  # as `headwater run --lanes` does, here for one lane too
    keep_freed()
    times = repeats or (2 if quick else 5)
    laps: list[Lap] = []
    answer: dict[str, Any] = {}
    for name in names:
        _check_same(name, min(_COMPARED, messages or _COMPARED))
        count = messages or round(lap(name, 1, _TRIED).rate_hz * (_QUICK_S if quick else _LAP_S))
        mine = [lap(name, lanes, count) for _ in range(times) for lanes in (1, 2)]
        laps += mine
        answer[name] = {**_answer(mine), "apart": round(apart(name, count // 2, times // 2 or 1), 3)}
    answer |= {"machine": machine(), "load": round(os.getloadavg()[0], 1), "repeats": times}
    if output is not None:
        write_rows([asdict(lap) for lap in laps], output / "lanes.csv")
        (output / "lanes.txt").write_text(table(answer) + "\n")
    return answer


def _flow(name: str, count: int, publish: Sink | None) -> Flow:
    source = generated("CITY", 1e9, count=count)
    one = {"publish": 1}  # several instances of a sink would have no order even in one lane
    if name == "pred":
        return pred(source, publish=publish, instances=one)
    make = etl if name.startswith("etl") else stats
    return make(source, publish=publish, wide=name.endswith("wide"), instances=one)


def _check_same(name: str, count: int) -> None:
    """Raise unless two lanes publish what one publishes, in the same order for each sensor where the flow has one."""
    outputs = []
    for lanes in (1, 2):
        sink = io.Collect()
        engine.run(_flow(name, count, sink), lanes=lanes)
        outputs.append(sink.records)
    one, two = ([_determined(name, row) for row in rows] for rows in outputs)
    if Counter(one) != Counter(two):
        raise AssertionError(f"{name}: two lanes published something else than one")
    if name in ("stats", "stats wide") and _by_sensor(outputs[0]) != _by_sensor(outputs[1]):
        raise AssertionError(f"{name}: two lanes published the results of a sensor in another order than one")


def _determined(name: str, row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what of a result does not depend on which step was faster, as the error beside the latest average does."""
    chance = name == "pred" and row["kind"] == "MLR"
    return tuple(str(value) for column, value in row.items() if not (chance and column == "result"))


def _by_sensor(rows: list[dict[str, Any]]) -> dict[Any, list[Any]]:
    by_sensor: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        by_sensor[row[CITY.id], row.get("obs"), row["kind"]].append(row["msg"])
    return by_sensor


def lap(name: str, lanes: int, count: int) -> Lap:
    """Run a flow on so many messages, and check that all of them were taken and none was lost."""
    flow = _flow(name, count, None)
    before = _spent_s()
    report = engine.run(flow, lanes=lanes)
    own, forked = (1e6 * (after - early) / count for early, after in zip(before, _spent_s(), strict=True))
    if report.dead_letters or report.left or report.last.records_in != count:
        raise AssertionError(f"{name}: {report.last.records_in} in, {report.dead_letters} dead, {report.left} left")
    return Lap(name, lanes, count, round(count / report.seconds, 1), round(own, 4), round(forked, 4))


#: a program that runs laps when it is told to, and tells how fast each was
_PROGRAM = """
import sys
from headwater.engine.memory import keep_freed, share_arenas
from headwater_bench.experiments.lanes import lap
share_arenas(), keep_freed()
name, count = sys.argv[1], int(sys.argv[2])
lap(name, 1, count // 10)
print("ready", flush=True)
for _ in sys.stdin:
    print(lap(name, 1, count).rate_hz, flush=True)
"""


def apart(name: str, count: int, times: int) -> float:
    """Return what two programs with one lane each do side by side over one of them alone: the machine's own bound."""
    start = [sys.executable, "-c", _PROGRAM, name, str(count)]
    with ExitStack() as stack:
        both = [stack.enter_context(Popen(start, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(2)]
        for each in both:
            assert each.stdout is not None
            if each.stdout.readline() != "ready\n":
                raise RunError(f"a program that was to run {name} beside this one did not start; see what it wrote")
        rates = [(_lap_hz(both[:1]), _lap_hz(both)) for _ in range(times)]
    return statistics.median(beside for _, beside in rates) / statistics.median(alone for alone, _ in rates)


def _lap_hz(programs: Sequence[Popen[str]]) -> float:
    """Let programs run a lap at the same time; return their rates together."""
    for each in programs:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    return sum(float(each.stdout.readline()) for each in programs if each.stdout is not None)


def _spent_s() -> tuple[float, float]:
    """Return the processor time of this process, and that of those forked from it."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, forked = (each.ru_utime + each.ru_stime for each in spent)
    return own, forked


def _answer(laps: list[Lap]) -> dict[str, Any]:
    one, two = ([lap for lap in laps if lap.lanes == lanes] for lanes in (1, 2))
    rates = [statistics.median(lap.rate_hz for lap in those) for those in (one, two)]
    cost = statistics.median(lap.own_us for lap in one)
    own, forked = (statistics.median(getattr(lap, name) for lap in two) for name in ("own_us", "forked_us"))
    return {
        "two_over_one": round(rates[1] / rates[0], 3),
        "by_processor_time": round(cost / max(own, forked), 3),
        "messages": one[0].messages,
        "one_hz": round(rates[0]),
        "two_hz": round(rates[1]),
        "one_us": round(cost, 3),
        "two_us": [round(own, 3), round(forked, 3)],
        "cases": [asdict(lap) for lap in laps],
    }


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    head = (
        "flow",
        "one lane/s",
        "two/s",
        "two over one",
        "µs one",
        "µs two, lane 0 and 1",
        "over one by processor time",
        "two programs over one",
    )
    rows = [
        (
            name,
            f"{row['one_hz']:,}",
            f"{row['two_hz']:,}",
            row["two_over_one"],
            row["one_us"],
            " ".join(map(str, row["two_us"])),
            row["by_processor_time"],
            row["apart"],
        )
        for name, row in ((name, answer[name]) for name in FLOWS if name in answer)
    ]
    note = f"each {answer['repeats']} times, by turns; {answer['machine']}; load {answer['load']}"
    return "\n".join([*text_table(head, rows), note])
