"""Flows on Spark beside the same logic written by hand in PySpark, taking turns.

ETL, STATS and PRED are compared with five handwritten programs each, from text to files and from Parquet to a table; a rate
counts from a program's command to its end, and what all have written is read back and compared. Beside them stands the
least that a program of PySpark takes, which starts Spark and stops it. `warm` is the same in one session, from a query's
start to its end. Steps with state by key are compared with both of Spark's per-key interfaces, in the median micro-batch.
`native` is a flow of windows in both meanings: by our steps, and by Spark's own operators.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater.errors import RunError, listed, suggestion
from headwater.metrics import Report
from headwater.spark.options import MEANINGS
from headwater_bench.experiments import (
    spark_cold,
    spark_flows,
    spark_keyed,
    spark_latency,
    spark_native,
    spark_start,
)
from headwater_bench.servers import kafka

PARTS = ("etl", "stats", "pred", "kafka", "warm", "keyed", "native", "latency", "start")
FLOWS = PARTS[:3]
#: numbers of keys, and for each the records in a micro-batch and how many of these there are: as many as take minutes
KEYED = {1_000: (50_000, 5), 100_000: (10_000, 3)}
KEYED_QUICK = {1_000: (20_000, 3), 100_000: (2_000, 3)}
RATES_HZ = (1_000, 10_000)
NATIVE = (6_000_000, 600_000)  #: records in windows, and in a quick run
LATENCY_S = (30.0, 10.0)  #: of a run, and of a quick one
SENSORS = 2_700  #: of the CITY stream, as the benchmark's authors scaled it
#: in a program's run, so that the best of the handwritten ones takes half a minute
COLD = {"etl": 600_000, "stats": 300_000, "pred": 1_500_000}
COLD_QUICK = {"etl": 60_000, "stats": 10_000, "pred": 150_000}
#: in a warm run of a flow, so that starting a query is a small part of it
MESSAGES = {"etl": 300_000, "stats": 50_000, "pred": 600_000}
QUICK = {"etl": 30_000, "stats": 6_000, "pred": 150_000}

_AGAIN = 2  #: of the handwritten programs, the best that have more than one turn


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    only: Sequence[str] | None = None,
    messages: int | None = None,
    sensors: int = SENSORS,
    repeats: int | None = None,
    ways: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compare; `only` chooses among `PARTS`, `ways` among text, parquet and kafka.

    The parts `kafka`, cold runs from a topic, and `warm` are of the chosen flows, or of all.
    """
    for names, choices, what in ((only, PARTS, "part"), (ways, spark_cold.WAYS, "way")):
        for name in names or ():
            if name not in choices:
                raise RunError(
                    f"there is no {what} {name!r} to measure; known are {listed(choices)}{suggestion(name, choices)}"
                )
    import pyspark

    from headwater.spark.session import session

    parts, times = only or PARTS, repeats or (1 if quick else 3)
    answer: dict[str, Any] = spark_start.first_output(times) if "start" in parts else {}
    spark: Any = None
    flows = [name for name in FLOWS if name in parts]
    from_kafka = "kafka" in parts
    cold_flows = flows or (FLOWS if from_kafka else ())
    read_from = list(ways or (*(spark_cold.FILES if flows else ()), *(("kafka",) if from_kafka else ())))
    if cold_flows and "kafka" in read_from and (missing := kafka.missing()):
        answer["no_kafka"] = missing
        read_from.remove("kafka")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        for name in cold_flows if read_from else ():
            count = messages or (COLD_QUICK if quick else COLD)[name]
            cold = spark_cold.Bench(name, Path(folder) / f"{name}-cold", count, sensors)
            answer[name] = {"messages": count, **_cold(cold, read_from, times)}
        if set(parts) - {*FLOWS, "kafka", "start"}:
            spark = session()  # not before: a program that is timed has the machine to itself
        for name in (flows or FLOWS) if "warm" in parts else ():
            count = messages or (QUICK if quick else MESSAGES)[name]
            bench = spark_flows.Bench(spark, Path(folder) / name, count, sensors)
            answer.setdefault(name, {})["warm"] = {"messages": count, **_warm(bench, name, times)}
        if "keyed" in parts:
            answer["keyed"] = _keyed(spark, Path(folder), quick, times)
        if "native" in parts:
            answer["native"] = _native(spark_native.Bench(Path(folder) / "native", messages or NATIVE[quick]), times)
    if "latency" in parts:
        span = LATENCY_S[quick]
        answer["empty_ms"] = spark_latency.empty_ms(spark, span / 2)
        latencies = {str(rate): spark_latency.of_etl(rate, span) for rate in RATES_HZ}
        answer["latency_ms"] = {rate: each["batch"] for rate, each in latencies.items()}
        answer["latency"] = latencies
        answer["batch_ms_1k"] = answer["latency_ms"].get("1000")
    answer["machine"] = f"{platform.machine()}, {whole_cores()} cores, Spark {pyspark.__version__}"
    answer["sensors"], answer["repeats"] = sensors, times
    if output is not None:
        _write(answer, output)
    return answer


def _cold(bench: spark_cold.Bench, names: Sequence[str], repeats: int) -> dict[str, Any]:
    """Compare programs each way; the headline is the least of the ratios."""
    ways = {}
    for way in names:
        with bench.topic() if way == "kafka" else nullcontext():
            ways[way] = _programs(bench, way, repeats)
    differences = [each for way in ways.values() for each in way["differences"]]
    least = min(way["over_handwritten"] for way in ways.values())
    return {"over_handwritten": least, "outputs_equal": not differences, "differences": differences, **ways}


def _programs(bench: spark_cold.Bench, way: str, repeats: int) -> dict[str, Any]:
    """Give each program a turn, then ours and the best of the others, which are known by then, more of them."""
    count, forms = bench.count_of(way), spark_cold.forms_of(way)

    def rate(form: str) -> float:
        return count / bench.seconds(way, form)

    rates = _turns(("ours", *forms, spark_cold.BARE), rate, 1)
    differences = bench.differences(way, forms)
    often = sorted(forms, key=lambda form: -rates[form][0])[:_AGAIN]
    for form, more in _turns(("ours", *often, spark_cold.BARE), rate, repeats - 1).items():
        rates[form] += more
    bare_s = count / statistics.median(rates.pop(spark_cold.BARE))
    best = max(often, key=lambda form: statistics.median(rates[form]))
    return {
        "over_handwritten": round(_ratio(rates["ours"], rates[best]), 2),
        "best": best,
        "messages": count,
        "bare_s": round(bare_s, 1),
        "rates": _medians(rates),
        "seconds": {form: [round(count / rate, 1) for rate in tried] for form, tried in rates.items()},
        "differences": differences,
    }


def _warm(bench: spark_flows.Bench, name: str, repeats: int) -> dict[str, Any]:
    differences = bench.differences(name)
    rates = _turns(("ours", *spark_flows.FORMS), lambda form: bench.rate(name, form), repeats)
    best = max(spark_flows.FORMS, key=lambda form: statistics.median(rates[form]))
    return {
        "over_handwritten": round(_ratio(rates["ours"], rates[best]), 2),
        "outputs_equal": not differences,
        "differences": differences,
        "best": best,
        "rates": _medians(rates),
        "all_rates": {form: [round(rate) for rate in tried] for form, tried in rates.items()},
        "limits": _limits(bench.last),
    }


def _keyed(spark: Any, folder: Path, quick: bool, repeats: int) -> dict[str, Any]:
    """Compare the steps at each number of keys; where one run takes minutes, one has to do."""
    answer: dict[str, Any] = {}
    sizes = KEYED_QUICK if quick else KEYED
    for keys, (batch, batches) in sizes.items():
        bench = spark_keyed.Bench(spark, folder / str(keys), batch, batches, keys)
        for step in spark_keyed.STEPS[: 1 if quick else None]:
            differences = bench.differences(step)
            times = repeats if keys == min(sizes) else 1
            rates = _turns(spark_keyed.SYSTEMS, lambda system: bench.rate(step, system), times)  # noqa: B023  # run at once
            answer.setdefault(step, {})[str(keys)] = {
                **_medians(rates),
                "records_in_a_batch": batch,
                "over_transform_with_state": round(_ratio(rates["ours"], rates["transform_with_state"]), 2),
                "over_apply_in_pandas": round(_ratio(rates["ours"], rates["apply_in_pandas"]), 2),
                "outputs_equal": not differences,
                "differences": differences,
            }
    return answer


def _native(bench: spark_native.Bench, repeats: int) -> dict[str, Any]:
    differences = bench.differences()
    rates = _turns(MEANINGS, bench.rate, repeats)
    return {
        "records": bench.records,
        **_medians(rates),
        "spark_over_headwater": round(_ratio(rates["spark"], rates["headwater"]), 2),
        "outputs_equal": not differences,
        "differences": differences,
    }


def _turns(systems: Sequence[str], rate: Callable[[Any], float], repeats: int) -> dict[str, list[float]]:
    """Let each have its turn, so many times: a machine whose speed drifts is then fair to all."""
    rates: dict[str, list[float]] = {system: [] for system in systems}
    for _ in range(repeats):
        for system in systems:
            rates[system].append(rate(system))
    return rates


def _medians(rates: dict[str, list[float]]) -> dict[str, int]:
    return {system: round(statistics.median(tried)) for system, tried in rates.items()}


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median ratio of runs that were neighbours in time."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _limits(report: Report) -> dict[str, Any]:
    """Say where our time went: in which steps, and how much of the processors' time was in steps at all."""
    busy = {step.name: step.busy_ns / 1e9 for step in report.last.steps.values()}
    cores = whole_cores()
    slowest = sorted(busy, key=lambda name: -busy[name])[:3]
    return {
        "seconds": round(report.seconds, 2),
        "in_steps": round(sum(busy.values()) / (report.seconds * cores), 3),
        "busiest": {name: round(busy[name], 3) for name in slowest},
        **{key: value for key, value in report.extra["spark"].items() if key in ("batches", "batch_ms", "stages")},
    }


def table(answer: dict[str, Any]) -> str:
    """Show the answer."""
    lines = [answer["machine"]]
    flows = [name for name in FLOWS if "over_handwritten" in answer.get(name, {})]
    if flows:
        lines += ["", f"messages/s, from a program's command to its end ({answer['sensors']:,} sensors)"]
        heads = "".join(f"{form:>11s}" for form in ("ours", *spark_cold.FORMS))
        lines += [
            f"  {'flow':5s} {'messages':>10s} {'from':8s}{heads}  over the best  equal  seconds: ours, best, bare"
        ]
    for name in flows:
        cases = answer[name]
        for way in [way for way in spark_cold.WAYS if way in cases]:
            rates, ratio = cases[way]["rates"], f"{cases[way]['over_handwritten']:.2f} ({cases[way]['best']})"
            cells = "".join(_cell(rates.get(form)) for form in ("ours", *spark_cold.FORMS))
            equal = "NO" if cases[way]["differences"] else "yes"
            took = [
                *(cases[way]["messages"] / rates[form] for form in ("ours", cases[way]["best"])),
                cases[way]["bare_s"],
            ]
            seconds = ", ".join(f"{each:.1f}" for each in took)
            lines.append(
                f"  {name:5s} {cases[way]['messages']:10,d} {way:8s}{cells}  {ratio:13s}  {equal:5s}  {seconds}"
            )
        lines += [f"        {difference}" for difference in cases["differences"]]
    lines += [f"not from Kafka: {answer['no_kafka']}"] if "no_kafka" in answer else []
    flows = [name for name in FLOWS if "warm" in answer.get(name, {})]
    if flows:
        heads = "".join(f"{form:>11s}" for form in ("ours", *spark_flows.FORMS))
        lines += ["", "messages/s in a session that is warm, from a query's start to its end, Parquet to nowhere"]
        lines += [f"  {'flow':5s} {'messages':>10s}{heads}  over the best  equal  what limits ours"]
    for name in flows:
        cases, rates, limits = answer[name]["warm"], answer[name]["warm"]["rates"], answer[name]["warm"]["limits"]
        cells = "".join(f"{rates[form]:11,d}" for form in ("ours", *spark_flows.FORMS))
        busiest = ", ".join(f"{step} {seconds} s" for step, seconds in limits["busiest"].items())
        ratio, equal = f"{cases['over_handwritten']:.2f} ({cases['best']})", "yes" if cases["outputs_equal"] else "NO"
        lines.append(
            f"  {name:5s} {cases['messages']:10,d}{cells}  {ratio:13s}  {equal:5s}  "
            f"{limits['in_steps']:.0%} of the processors in steps ({busiest}); the rest is Spark"
        )
        lines += [f"        {difference}" for difference in cases["differences"]]
    if "keyed" in answer:
        lines += ["", "records/s of steps with state by key, in the median micro-batch"]
        heads = "".join(
            f"{name:>25s}" for name in ("ours", "applyInPandasWithState", "transformWithState", "equal results")
        )
        lines += [f"  {'step':20s} {'keys':>8s}{heads}"]
        for step, by_keys in answer["keyed"].items():
            for keys, cases in by_keys.items():
                theirs = f"{cases['apply_in_pandas']:,d} (ours {cases['over_apply_in_pandas']:.1f}×)"
                others = f"{cases['transform_with_state']:,d} (ours {cases['over_transform_with_state']:.1f}×)"
                equal = "yes" if cases["outputs_equal"] else "NO"
                lines.append(f"  {step:20s} {int(keys):8,d}{cases['ours']:25,d}{theirs:>25s}{others:>25s}{equal:>25s}")
    if "native" in answer:
        cases = answer["native"]
        lines += [
            "",
            f"records/s of a filter and windows by key: {cases['headwater']:,d} by our steps, {cases['spark']:,d} "
            f"({cases['spark_over_headwater']:.1f}×) with meaning='spark'; results are "
            f"{'equal' if cases['outputs_equal'] else 'NOT equal'}",
        ]
    if "latency" in answer:
        lines += ["", f"ETL at a rate, ms (an empty query's micro-batch takes {answer['empty_ms']:.0f})"]
        lines += [f"  {'records/s':>10s} {'micro-batch':>12s} {'record p50':>11s} {'record p99':>11s}"]
        for rate, each in answer["latency"].items():
            lines.append(f"  {int(rate):10,d} {each['batch']:12.0f} {each['p50']:11.0f} {each['p99']:11.0f}")
    if "first_output_s" in answer:
        lines += [
            "",
            f"from the command to the first output of ETL over {spark_start.MESSAGES:,} messages: "
            f"{answer['first_output_s']} s, {answer['over_bare_spark']} times what one line of PySpark takes "
            f"({answer['bare_spark_s']} s)",
        ]
    return "\n".join(lines)


def _cell(rate: int | None) -> str:
    return " " * 10 + "–" if rate is None else f"{rate:11,d}"


def _write(answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    lines = ["what,system,rate"]
    for name in FLOWS:
        for way in [way for way in (*spark_cold.WAYS, "warm") if way in answer.get(name, {})]:
            lines += [f"{name} {way},{form},{rate}" for form, rate in answer[name][way]["rates"].items()]
    for step, by_keys in answer.get("keyed", {}).items():
        for keys, rates in by_keys.items():
            lines += [f"{step} {keys} keys,{system},{rates[system]}" for system in spark_keyed.SYSTEMS]
    (output / "spark.csv").write_text("\n".join(lines) + "\n")
