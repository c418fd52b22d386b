"""Steps of a flow that move from site to site under load, while sites die and links are cut: is anything lost?

Three sites and a coordinator are processes of this machine, and where Spark is installed a fourth site, to which steps
go now and then, and come back. Links are cut where sites can have networks of their own, which takes root. Records
fall due by the clock, whatever happens, so that a record that has to wait shows it. In the end
what the sinks have is held against an undisturbed run on one engine. Where something went wrong, all of it is kept: what
every process said, the state of the coordinator and of all sites, what the sinks have, and each move with its fault.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.errors import RunError
from headwater_bench.experiments.rows import write_rows
from headwater_bench.moves.faults import FAULTS, LINK_FAULTS, spark_site, strike
from headwater_bench.moves.sites import MOVABLE, SITES, SPARK, Farm
from headwater_bench.moves.verdict import compared, different, longest_s, usual_s, waits_s

_RATE = 2000  #: records/s
_EVERY = "50 ms"  #: between checkpoints: what a record waits at each bridge
_CATCH_UP_S = 3.0  #: with what fell due before all sites ran
_CALM_S = 2.0  #: before the first move, in which records take as long as usual
_PAUSE_S = 1.0  #: after a move, at most
_AROUND_S = 0.5  #: of records that fell due shortly before or after a move
_TRIP, _TRIP_AT = (
    15,
    4,
)  #: of so many moves one is to Spark, and the next one back; amid one of the two Spark's site dies


def run(
    quick: bool = False,
    output: Path | None = None,
    moves: int | None = None,
    seed: int = 1,
    calm: bool = False,
    lanes: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Move steps, each part of so many `lanes`, at random moments, half of the time with a fault; `calm` has none."""
    count = moves or (8 if quick else 200)
    chance, has_spark = Random(seed), find_spec("pyspark") is not None
    folder, place = Path(tempfile.mkdtemp(prefix="headwater-moves-", dir=Path.cwd())), ""
    try:
        farm = Farm(folder, _RATE, _EVERY, spark=has_spark, lanes=lanes)
        rows: list[dict[str, Any]] = []
        try:
            farm.wait(farm.settled, "a flow that runs")
            time.sleep(_CATCH_UP_S)
            calm_between = time.time(), time.time() + _CALM_S
            time.sleep(_CALM_S)
            uncut = farm.why_uncut()
            possible = [fault for fault in FAULTS if not (uncut and fault in LINK_FAULTS)]
            faults = cycle(chance.sample(possible, len(possible)))  # so that each kind comes as often as any other
            for number in range(count):
                rows.append(_moved(farm, chance, number, None if calm else faults, has_spark=has_spark))
                tell(f"move {number + 1} of {count}: {_text(rows[-1])}")
            tell("the stream ends")
            records = farm.finish(2.0)
        except BaseException as error:
            place = _keep(folder, output)
            message = f"after {len(rows)} of {count} moves of --seed {seed}: {error}; what is left of it is in {place}"
            tell(message)
            if isinstance(error, Exception):
                raise RunError(message) from error
            raise
        finally:
            farm.close()
        tell("the same on one engine, to compare")
        engine.run(find_flow(f"{folder / 'readings.py'}:undisturbed"))
        verdict = compared(folder / "moved", folder / "undisturbed", records)
        waits = waits_s(folder / "moved")
        mismatches = different(folder / "moved", folder / "undisturbed") if verdict != (0, 0, True) else []
        place = _keep(folder, output) if mismatches else ""
    finally:
        if not place:
            shutil.rmtree(folder, ignore_errors=True)
    usual = usual_s(waits, calm_between)
    for row in rows:
        between = row.pop("between")
        row["gap_ms"] = round(1000 * max(0.0, longest_s(waits, between) - usual), 1)
    calm_rows = [row for row in rows if not row["fault"] and not row["undone"]]
    calm_gaps = sorted(row["gap_ms"] for row in calm_rows if not row["spark"])
    spark_gaps = sorted(row["gap_ms"] for row in calm_rows if row["spark"])
    answer = {
        "moves": len(rows),
        "seed": seed,
        "lanes": max((row["lanes"] for row in rows), default=1),  # as the parts themselves have said
        "kept": place,
        "faults": {fault: sum(row["fault"] == fault for row in rows) for fault in FAULTS},
        "links_uncut": uncut,
        "undone": sum(bool(row["undone"]) for row in rows),
        "records": records,
        "lost": verdict.lost,
        "twice": verdict.twice,
        "state_equal": verdict.state_equal,
        "different": mismatches,
        "usual_ms": round(1000 * usual, 1),
        "gap_ms": {"p50": statistics.median(calm_gaps), "max": calm_gaps[-1]} if calm_gaps else {},
        "spark": sum(bool(row["spark"]) for row in rows),
        "spark_killed": sum(bool(row["spark"] and row["fault"]) for row in rows),
        "spark_gap_ms": {"p50": statistics.median(spark_gaps), "max": spark_gaps[-1]} if spark_gaps else {},
    }
    if output is not None:
        write_rows(rows, output / "moves.csv")
    return answer


def _keep(folder: Path, output: Path | None) -> str:
    """Keep all that tells why something went wrong, where it is or beside the results; return where."""
    if output is None:
        return str(folder)
    output.mkdir(parents=True, exist_ok=True)
    return str(shutil.move(folder, output / folder.name))


def _note(farm: Farm, what: dict[str, Any]) -> None:
    """Note a move with what went wrong, as it begins and as it ends: it may be the last."""
    with (farm.folder / "moves.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


def _text(row: dict[str, Any]) -> str:
    fault = row["fault"]
    amid = f", over a {fault}" if fault in LINK_FAULTS else f", the {fault} killed" if fault else ""
    came = f"undone: {row['undone']}" if row["undone"] else f"parts stood still for {row['stopped_ms']:g} ms"
    return f"{row['steps']} to {row['to']}{amid}; {came}"


def _moved(farm: Farm, chance: Random, number: int, faults: Iterator[str] | None, *, has_spark: bool) -> dict[str, Any]:
    """Move some steps, and wait until all run again; what was begun comes to its end, or was undone."""
    time.sleep(chance.random() * _PAUSE_S)
    before = farm.sites_of(MOVABLE)
    steps = chance.sample(MOVABLE, chance.choice((1, 1, 2)))
    target = chance.choice([site for site in SITES if site != before[steps[0]]])
    away = [step for step, site in before.items() if site == SPARK]
    if away:
        steps = away
    elif has_spark and number % _TRIP == _TRIP_AT:
        target = SPARK
    fault = ""
    if faults is not None and number % 2 == 1:
        fault = spark_site(before[steps[0]], target) or next(faults)
    began_s = time.time()
    _note(farm, {"move": number, "at_s": began_s, "steps": list(steps), "were": before, "to": target, "fault": fault})
    farm.move(list(steps), target)
    if fault:
        strike(farm, fault, before[steps[0]], target, chance)
    status = farm.wait(farm.settled, "a flow that runs after a move")
    moved = status["flow"]["moved"]
    _note(farm, {"move": number, "ended_s": time.time(), **moved})
    return {
        "steps": " ".join(steps),
        "to": target,
        "spark": "back" if away else "there" if target == SPARK else "",
        "fault": fault,
        "undone": moved["why"],
        "lanes": max(site.get("lanes") or 1 for site in status["sites"]),
        "stopped_ms": round(1000 * (moved["gap_s"] or 0.0), 1),
        **{f"{stage}_ms": round(1000 * seconds, 1) for stage, seconds in moved["stages_s"].items()},
        "between": (began_s - _AROUND_S, time.time() + _AROUND_S),
    }


def table(answer: dict[str, Any]) -> str:
    """Say it in words."""
    kinds = ", ".join(f"{count} of the {fault}" for fault, count in answer["faults"].items() if count)
    gap = answer["gap_ms"]
    lanes = f", parts in up to {answer['lanes']} lanes" if answer["lanes"] > 1 else ""
    lines = [
        f"{answer['moves']} moves under load{lanes}, {answer['undone']} of them undone; faults meanwhile: {kinds or 'none'}",
        f"{answer['records']:,} records: {answer['lost']} lost, {answer['twice']} twice; state "
        + ("as in an undisturbed run" if answer["state_equal"] else "NOT as in an undisturbed run"),
    ]
    lines += answer["different"]
    lines += [f"seed {answer['seed']}; all that is left of it is in {answer['kept']}"] if answer["kept"] else []
    lines += [f"no link was cut: {answer['links_uncut']}"] if answer["links_uncut"] else []
    if gap:
        lines.append(
            f"a record waited longer by {gap['p50']:g} ms in the middle move without a fault, by {gap['max']:g} ms at "
            f"most; usual are {answer['usual_ms']:g} ms"
        )
    if answer["spark"]:
        spark_gap = answer["spark_gap_ms"]
        waited = (
            f"; a record waited longer by {spark_gap['p50']:g} ms in the middle, without a fault" if spark_gap else ""
        )
        killed = f"in {answer['spark_killed']} of which Spark's site was killed"
        lines.append(f"{answer['spark']} of them were to Spark, or back, {killed}{waited}")
    return "\n".join(lines)
