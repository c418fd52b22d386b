"""Experiment `kills`: the engine killed with SIGKILL at random moments, and what its sinks hold in the end.

One flow has state by key, windows of event time, a join and a query, and writes a text file, a CSV file, a table of Parquet
files and a SQLite table. A child process runs it with checkpoints and is killed, at a random moment or, every other time, at
a chosen point: amid a checkpoint, going on from one, or a sink's commit (`points`). The next one goes on. What sinks hold
when one came to its end is compared with an undisturbed run: `lost` is what they lack, `twice` what they have too often.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from headwater import Flow, agg, col, engine, io
from headwater.data.column import Array, Text
from headwater.flow.windows import Tumbling
from headwater_bench.experiments.points import Point
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.experiments.servers import Servers

RECORDS = 6_000
RATE = 30_000
_NO_SERVERS = Servers()
_SUMMED = ("key", "n", "total")  #: the columns of what servers are written


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    kills: int | None = None,
    seed: int | None = None,
    parallel: int | None = None,
    lanes: int | None = None,
    postgres: str | None = None,
    kafka: str | None = None,
) -> dict[str, Any]:
    """Kill runs at random until there were so many kills; each round begins anew and goes on until the flow has ended.

    By turns keyed steps have one instance, two, or run in two lanes, unless one of it is chosen.

    With the URL of a PostgreSQL database, or brokers of Kafka, a table or a topic there is written and read back too.
    """
    servers = Servers(postgres, kafka)
    wanted = kills or (50 if quick else 1_000)
    chance = random.Random(seed if seed is not None else 1)
    folder = Path(tempfile.mkdtemp(prefix="headwater-kills-"))
    rounds: list[dict[str, Any]] = []
    points: Counter[str] = Counter()
    try:
        modes = [(parallel or 1, lanes or 1)] if parallel or lanes else [(1, 1), (2, 1), (1, 2)]
        whole = {many: _undisturbed(folder / f"whole-{many}", many, servers) for many in {many for many, _ in modes}}
        done = 0
        while done < wanted:
            many, in_lanes = modes[len(rounds) % len(modes)]
            round_ = _round(folder / f"round-{len(rounds)}", many, in_lanes, chance, whole[many], servers)
            points += round_.pop("points")
            rounds.append({"round": len(rounds), "parallel": many, "lanes": in_lanes, **round_})
            done += round_["kills"]
            shutil.rmtree(folder / f"round-{len(rounds) - 1}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answer: dict[str, Any] = {
        "kills": sum(each["kills"] for each in rounds),
        "kills_while_checkpointing": sum(each["kills_while_checkpointing"] for each in rounds),
        "kills_at_points": dict(sorted(points.items())),
        "rounds": len(rounds),
        "records": RECORDS * len(rounds),
        "lost": sum(each["lost"] for each in rounds),
        "twice": sum(each["twice"] for each in rounds),
        "seed": seed if seed is not None else 1,
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_rows(rounds, output / "kills.csv")
    if answer["lost"] or answer["twice"]:
        raise AssertionError(f"records are not where they belong: {answer}; rounds: {[r for r in rounds if r['why']]}")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return "\n".join(text_table(["", ""], [[name, value] for name, value in answer.items()]))


# -- the flow -------------------------------------------------------------------------------------------------------------


def flow(folder: Path, parallel: int, rate: float, servers: Servers = _NO_SERVERS) -> Flow:
    """A flow with every kind of state, whose every result can be told from all others."""
    made = Flow("killed")
    left = made.read("left", _numbers(rate)).event_time("time", "at", lateness="2 s")
    right = made.read("right", _numbers(rate)).event_time("its time", "at", lateness="2 s")
    keyed = left.key_by("key")
    summed = keyed.process("sum", _summed, out={"key": str, "n": int, "total": int}, parallel=parallel)
    summed.write("text", io.JsonLines(folder / "text.jsonl"))
    keyed.window("minute", Tumbling("1 min"), count=agg.count(), highest=agg.max("n"), parallel=parallel).write(
        "csv", io.Csv(folder / "windows.csv")
    )
    joined = keyed.join("pair", right.key_by("key"), within="1 s", parallel=parallel)
    joined.select("pairs", "key", n=col.n, other=col["its time_n"]).write(
        "table", io.Sqlite(folder / "pairs.db", "pairs")
    )
    servers.write(summed, folder)
    made.query(
        "query",
        "from every a = time -> b = time[a.key == b.key and b.n == a.n + 13] within 1 min "
        "select a.n as first, b.n as second, a.key as key insert into found",
    ).write("parquet", io.ParquetTable(folder / "found"))
    return made


def _numbers(rate: float) -> io.Generate:
    """Records whose moments are up to a second out of order."""

    def make(numbers: Array) -> dict[str, Any]:
        at = numbers * 100_000 + (numbers * 7919 % 11) * 100_000
        return {"key": Text.of([f"k{n % 13}" for n in numbers.tolist()]), "n": numbers, "at": at}

    return io.Generate(make, {"key": str, "n": int, "at": "time"}, rate=rate, count=RECORDS)


def _summed(total: int | None, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total = (total or 0) + record["n"]
    return total, {"key": record["key"], "n": record["n"], "total": total}


# -- runs -----------------------------------------------------------------------------------------------------------------

Held = dict[str, Counter[tuple[Any, ...]]]  #: what each sink holds, each record as often as it is there


def _undisturbed(folder: Path, parallel: int, servers: Servers) -> Held:
    """Return what the sinks hold without a kill; children are forked from here, so all that is compiled is by now."""
    for name in ("whole", "warm"):
        (folder / name).mkdir(parents=True)
    for seconds in (0.1, None):
        warm = folder / "warm"
        engine.run(flow(warm, parallel, RATE, servers), checkpoint=warm / "checkpoint", every="10 ms", seconds=seconds)
    servers.take(folder / "warm", _SUMMED)
    engine.run(flow(folder / "whole", parallel, 1e9, servers), workers=1)
    held = _held(folder / "whole", servers)
    if not all(held.values()):
        raise AssertionError(
            f"a sink of the undisturbed run holds nothing: { {name: len(h) for name, h in held.items()} }"
        )
    return held


def _round(
    folder: Path, parallel: int, lanes: int, chance: random.Random, whole: Held, servers: Servers
) -> dict[str, Any]:
    """Run, kill and run again until the flow has ended; return what its sinks lack, and have too often."""
    folder.mkdir()
    kills = amid = 0
    points: Counter[str] = Counter()
    while True:
        # of lanes, the first is killed: the others then end, and nobody is left to be in the way of the next run
        point = Point.chosen(chance, remote=any(servers)) if lanes == 1 and chance.random() < 0.5 else None
        child = os.fork()
        if child == 0:
            _child(folder, parallel, lanes, servers, point)
        if point is None:
            # on a busy machine a run may not even have begun by then: the more kills, the longer the next one lives
            time.sleep(chance.choice((0.05, 0.2, 0.6)) * chance.random() * lanes * 1.05**kills)
        reached = point is not None and _is_over(child, within_s=2.0)
        amid += any(folder.glob("checkpoint/*.new"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if reached and point is not None and os.WIFSIGNALED(status):
            points[point.name] += 1
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                raise AssertionError(f"a run went wrong after {kills} kills: {(folder / 'error').read_text()}")
            break
        kills += 1
    held = _held(folder, servers)
    lost = {name: whole[name] - held[name] for name in whole}
    twice = {name: held[name] - whole[name] for name in whole}
    why = {name: (list(lost[name])[:3], list(twice[name])[:3]) for name in whole if lost[name] or twice[name]}
    return {
        "kills": kills,
        "kills_while_checkpointing": amid,
        "points": points,
        "lost": sum(sum(each.values()) for each in lost.values()),
        "twice": sum(sum(each.values()) for each in twice.values()),
        "why": str(why) if why else "",
    }


def _is_over(child: int, within_s: float) -> bool:
    """Wait for a child to end, by itself or by its own hand; return whether it did."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(0.002)
    return False


def _child(folder: Path, parallel: int, lanes: int, servers: Servers, point: Point | None) -> None:
    """Run the flow, or go on with it, up to a point at which it kills itself; never returns."""
    try:
        if point is not None:
            point.arm()
        made = flow(folder, parallel, RATE, servers)
        engine.run(made, lanes=lanes if lanes > 1 else None, checkpoint=folder / "checkpoint", every="10 ms")
    except BaseException:
        import traceback

        (folder / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def _held(folder: Path, servers: Servers) -> Held:
    """Read back what the sinks hold, as other programs would."""
    import pyarrow.dataset as dataset

    found = dataset.dataset(folder / "found", format="parquet", exclude_invalid_files=False).to_table().to_pylist()
    with sqlite3.connect(folder / "pairs.db") as database:
        pairs = database.execute("select * from pairs").fetchall()
    lines = (folder / "text.jsonl").read_text().splitlines()
    held: Held = {
        "text": Counter(tuple(msgspec.json.decode(line).values()) for line in lines),
        "csv": Counter((line,) for line in (folder / "windows.csv").read_text().splitlines()[1:]),
        "table": Counter(pairs),
        "parquet": Counter(tuple(row.values()) for row in found),
    }
    return {**held, **servers.take(folder, _SUMMED)}
