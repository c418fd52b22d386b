"""Experiment `kills`: the engine killed with SIGKILL at random moments, and what its sinks hold in the end.

Each case is a flow with state by key from one source to one sink, of all that run here: generators, files, tails, folders,
SQLite, Parquet, PostgreSQL, Kafka, MQTT and HTTP; one has windows of event time, a join and a query too, in one instance,
two, and two lanes. A child process runs it with checkpoints and is killed, at a random moment or, every other time, at a
chosen point: amid a checkpoint, going on from one, or a sink's commit. The next one goes on. What sinks and state hold when
one came to its end is held against an undisturbed run: `lost` is what they lack, `twice` what they have too often, `state`
how many keys have another sum. `again` is what came more than once where no more is promised, and receivers can tell.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from headwater.errors import FlowError, listed
from headwater_bench.experiments.rows import case_table, write_rows
from headwater_bench.kills import origins, targets
from headwater_bench.kills.case import Case, Origin, Target
from headwater_bench.kills.everything import Everything
from headwater_bench.kills.rounds import Killed, Round, play
from headwater_bench.kills.servers import Servers, started

QUICK, ALL, LONG = 50, 1_000, 10_000
_FAULTS = ("lost", "twice", "state")


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    kills: int | None = None,
    long: bool = False,
    seed: int | None = None,
    case: Sequence[str] = (),
    postgres: str | None = None,
    kafka: str | None = None,
) -> dict[str, Any]:
    """Kill runs until there were so many kills, of all cases in turn; each round begins anew and goes on to the flow's end.

    Servers are started here, unless a URL of a PostgreSQL database or brokers of Kafka are given; to be quick those two are
    left out. `case` is parts of names of cases: those alone are run.
    """
    needed = kills or (QUICK if quick else LONG if long else ALL)
    chance = random.Random(1 if seed is None else seed)
    folder = Path(tempfile.mkdtemp(prefix="headwater-kills-"))
    began_s = time.monotonic()
    rows: list[dict[str, Any]] = []
    points: Counter[str] = Counter()
    try:
        with started(postgres, kafka, quick=quick) as servers:
            for number, each in enumerate(cycle(_select(servers, folder, case))):
                played = play(each, folder / f"round-{number}", chance)
                shutil.rmtree(folder / f"round-{number}")
                points += played.points
                rows.append(_row(number, each.name, played))
                if sum(row["kills"] for row in rows) >= needed:
                    break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if output is not None:
        write_rows(rows, output / "kills.csv")
    answer: dict[str, Any] = {
        **_sums(rows),
        "kills_at_points": dict(sorted(points.items())),
        "rounds": len(rows),
        "cases": {name: _sums([row for row in rows if row["case"] == name]) for name in _names(rows)},
        "not_here": servers.missing,
        "seed": 1 if seed is None else seed,
        "seconds": round(time.monotonic() - began_s, 1),
    }
    if any(answer[name] for name in _FAULTS):
        raise AssertionError(f"records are not where they belong: {answer}; {[row for row in rows if row['why']]}")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return case_table(answer, "cases")


def cases(servers: Servers) -> list[Killed]:
    """Return a case for every source and every sink that there is a server for, and those of all kinds of state."""
    text = targets.TextFile()
    kinds = {"JSON Lines file": "jsonl", "CSV file": "csv", "Parquet file": "parquet", "SQLite table": "db"}
    sources: list[Origin] = [origins.File(name, ending) for name, ending in kinds.items()]
    sources += [origins.Tail(), origins.Folder(), origins.Webhook()]
    sinks: list[Target] = []
    if servers.http is not None:
        sinks.append(targets.Http(servers.http))
    if servers.mqtt is not None:
        sources += [origins.Mqtt(servers.mqtt, qos) for qos in (1, 2)]
        sinks += [targets.Mqtt(servers.mqtt), targets.MqttWithIds(servers.mqtt)]
    if servers.postgres is not None:
        sources.append(origins.Postgres(servers.postgres))
        sinks.append(targets.Postgres(servers.postgres))
    if servers.kafka is not None:
        sources.append(origins.Kafka(servers.kafka))
        sinks.append(targets.Kafka(servers.kafka))
    of_all_kinds: list[Killed] = [Everything(), Everything(parallel=2), Everything(lanes=2)]
    generator = origins.Generator()
    return [*of_all_kinds, *(Case(each, text) for each in sources), *(Case(generator, each) for each in sinks)]


def _select(servers: Servers, folder: Path, names: Sequence[str]) -> list[Killed]:
    available = cases(servers)
    points = [each for each in available if not names or any(name in each.name for name in names)]
    if not points:
        raise FlowError(f"no case is called {listed(names)}; cases are {listed(each.name for each in available)}")
    for number, each in enumerate(points):
        each.rehearse(folder / f"rehearsed-{number}")
    return points


def _row(number: int, case: str, played: Round) -> dict[str, Any]:
    discrepancy = played.discrepancy
    return {
        "round": number,
        "case": case,
        "kills": played.kills,
        "kills_while_checkpointing": played.while_checkpointing,
        "lost": discrepancy.lost,
        "twice": discrepancy.twice,
        "again": discrepancy.again,
        "state": discrepancy.state,
        "why": "; ".join(discrepancy.why),
    }


def _sums(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    names = ("kills", "kills_while_checkpointing", "lost", "twice", "again", "state")
    return {name: sum(row[name] for row in rows) for name in names}


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["case"] for row in rows))
