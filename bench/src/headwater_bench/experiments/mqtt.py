"""MQTT in and out: the highest rates at which a filter, a mean per sensor and ETL keep up, with every result measured.

Load and system under test are processes of their own; the load is the broker, or a client of mosquitto. A rate is sustained
when all results came, none twice, 99 of 100 within 100 ms, and so at every lower rate that was tried. What load and broker
can carry by themselves is found with an echo. With QoS 1 the filter is measured twice: a message
is acknowledged as soon as the flow has it, or when it is safe on disk, with a checkpoint each 5 s.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater_bench.experiments.broker import broker
from headwater_bench.experiments.mqtt_ekuiper import ekuiper as ekuiper_running
from headwater_bench.experiments.mqtt_flows import TASKS, lines_for, running
from headwater_bench.experiments.mqtt_load import Load, Step
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.experiments.trial import machine

_RATES = (
    5_000,
    20_000,
    50_000,
    100_000,
    150_000,
    200_000,
    300_000,
    400_000,
    600_000,
    800_000,
    1_000_000,
    1_500_000,
    2_000_000,
)
_QUICK_RATES = (1_000, 5_000)
_LOW_RATES = (8_000, 10_000, 12_500, 16_000, 25_000, 31_000, 40_000)
_THROUGH_RATES = (5_000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000, 80_000)
_TRIES = 3  # at each rate: the machine may be shared, and a pause of another's making is not ours
_IN_EKUIPER = ("filter", "etl")  # the tasks that are rules of eKuiper too
DEMANDED = {"filter": 200_000, "filter, QoS 1": 100_000, "etl": 100_000}
"""Messages/s that were asked for, of which a load should be able to carry five times as many by itself."""

_CONNECTIONS = {"echo": 1}  # two for all others: one reads, one publishes


def run(
    quick: bool = False, output: Path | None = None, *, seconds: float = 2.0, ekuiper: Path | None = None
) -> dict[str, Any]:
    """Climb the rates for each task, straight and through mosquitto, for an echo in its place, and for eKuiper if given."""
    rates, span_s = (_QUICK_RATES, 0.5) if quick else (_RATES, seconds)
    rows: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"machine": machine(), "load_average": [round(load, 2) for load in os.getloadavg()]}
    for task in TASKS:
        answer[task] = _figures(_climb(task, 0, rates, span_s, rows))
    flown = _climb("filter", 1, rates, span_s, rows)
    answer["filter"] |= {f"qos1_{key}": value for key, value in _figures(flown).items()}
    safe = _climb("filter", 1, rates, span_s, rows, durable=True)
    answer["filter"] |= {f"durable_{key}": value for key, value in _figures(safe).items()}
    echo = _figures(_climb("echo", 0, rates, span_s, rows))
    answer["generator"] = echo | {
        "echo_over_filter": _ratio(echo["rate"], answer["filter"]["rate"]),
        "echo_over_demanded": {task: _ratio(echo["rate"], rate) for task, rate in DEMANDED.items()},
    }
    if ekuiper is not None:
        answer["ekuiper"] = {}
        for task in _IN_EKUIPER:
            theirs = _figures(_climb(task, 0, _with_low(rates), span_s, rows, folder=ekuiper))
            answer["ekuiper"][task] = theirs
            answer[task]["over_ekuiper"] = _ratio(answer[task]["rate"], theirs["rate"])
    if shutil.which("mosquitto"):
        ours, theirs = _side_by_side(rates if quick else _THROUGH_RATES, span_s, rows)
        answer["mosquitto"] = {"filter": ours, "echo": theirs, "over_echo": _ratio(ours["rate"], theirs["rate"])}
    lost = answer["filter"]["qos1_lost"] + answer["filter"]["durable_lost"]
    answer["lost"] = sum(answer[task]["lost"] for task in TASKS) + lost
    if output is not None:
        write_rows(rows, output / "mqtt.csv")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    rows = [(task, _cells(answer[task])) for task in TASKS]
    rows += [("filter, QoS 1", _cells(answer["filter"], "qos1_"))]
    rows += [("filter, QoS 1, safe on disk before it is acknowledged", _cells(answer["filter"], "durable_"))]
    rows += [("echo", _cells(answer["generator"]))]
    rows += [(f"{task} in eKuiper", _cells(figures)) for task, figures in answer.get("ekuiper", {}).items()]
    if "mosquitto" in answer:
        rows += [(f"{name} through mosquitto", _cells(answer["mosquitto"][name])) for name in ("filter", "echo")]
    lines = text_table(("", "messages/s", "p99 ms", "lost"), [(name, *cells) for name, cells in rows])
    text = ", ".join(f"{task} {answer[task]['headroom']}" for task in TASKS)
    lines.append(f"the load could offer so many times as much, by its own processor time: {text}")
    lines.append(
        f"an echo in place of the filter carries {answer['generator']['echo_over_filter']} times what that does"
    )
    text = ", ".join(
        f"{task} {DEMANDED[task]:,}/s {ratio}" for task, ratio in answer["generator"]["echo_over_demanded"].items()
    )
    lines.append(f"and so many times the rate that was asked for, with QoS 0 as the echo has it: {text}")
    for task in answer.get("ekuiper", ()):
        lines.append(f"{task} carries {answer[task]['over_ekuiper']} times what it does in eKuiper")
    if "mosquitto" in answer:
        lines.append(f"through mosquitto the filter keeps {answer['mosquitto']['over_echo']} of what an echo does")
    return "\n".join([*lines, f"{answer['machine']}, load average {answer['load_average'][0]}"])


def _climb(
    task: str,
    qos: int,
    rates: tuple[int, ...],
    span_s: float,
    rows: list[dict[str, Any]],
    *,
    folder: Path | None = None,
    durable: bool = False,
) -> list[Step]:
    """Offer rising rates until one is not kept; return the last try of each. `folder` is where eKuiper is.

    Where it is `durable`, messages are acknowledged when they are safe in a log, and results leave by another.
    """
    steps: list[Step] = []
    with _loaded(task, qos, folder, durable=durable) as load:
        for rate in rates:
            system = "headwater" if folder is None else "eKuiper"
            through = "logs" if durable else ""
            steps.append(_offered(load, rate, span_s, rows, system=system, task=task, qos=qos, through=through))
            if not steps[-1].kept:
                break
    return steps


def _side_by_side(rates: tuple[int, ...], span_s: float, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Climb with the filter and an echo behind a mosquitto each, taking turns at every rate; return what is said of both."""
    with _behind_mosquitto("filter") as ours, _behind_mosquitto("echo") as theirs:
        loads, steps = {"filter": ours, "echo": theirs}, {"filter": list[Step](), "echo": list[Step]()}
        for rate in rates:
            for task, load in loads.items():
                if all(step.kept for step in steps[task]):
                    step = _offered(load, rate, span_s, rows, system="headwater", task=task, qos=0, through="mosquitto")
                    steps[task].append(step)
    return [_figures(steps[task]) for task in loads]


def _with_low(rates: tuple[int, ...]) -> tuple[int, ...]:
    """Return rates with more between the lowest: eKuiper keeps some tens of thousands."""
    return tuple(sorted({*rates, *(rate for rate in _LOW_RATES if rates[0] < rate < rates[-1])}))


def _offered(load: Load, rate: float, span_s: float, rows: list[dict[str, Any]], **labels: Any) -> Step:
    """Offer a rate until it is kept, or a few times in vain."""
    for _ in range(_TRIES):
        step = load.step(rate, 0.4 * span_s, span_s)
        rows.append({**labels, **asdict(step)})
        if step.kept:
            break
    return step


@contextmanager
def _loaded(task: str, qos: int, folder: Path | None = None, *, durable: bool = False) -> Iterator[Load]:
    """Start a system under test with a load that is its broker."""
    with (
        closing(Load(lines_for(task), qos=qos)) as load,
        running(task, load.port, qos, durable=durable) if folder is None else ekuiper_running(folder, load.port, task),
    ):
        load.wait_for(1 if durable else _CONNECTIONS.get(task, 2))  # by way of a log, who publishes comes with a result
        load.await_answer()
        yield load


@contextmanager
def _behind_mosquitto(task: str) -> Iterator[Load]:
    with broker() as url, closing(Load(lines_for("filter"), broker=int(url.rpartition(":")[2]))) as load:
        load.join()
        with running(task, load.port):
            load.await_answer()
            yield load


def _figures(steps: list[Step]) -> dict[str, Any]:
    """Return the highest rate that was kept, with its latency, and what was lost at the rates that were kept."""
    sustained_steps = [step for step in steps if step.kept]
    best = sustained_steps[-1] if sustained_steps else steps[0]
    return {
        "rate": best.rate if sustained_steps else 0,
        "p50_ms": round(best.p50_ms, 2),
        "p99_ms": round(best.p99_ms, 2),
        "lost": sum(step.lost for step in sustained_steps),
        "load_cores": round(best.load_cores, 3),
        # the load is one thread: so many times as much it could offer in the same time of its own
        "headroom": round(1 / best.load_cores, 1) if best.load_cores else None,
    }


def _ratio(of: float, to: float) -> float | None:
    return round(of / to, 2) if to else None


def _cells(figures: dict[str, Any], prefix: str = "") -> tuple[str, str, str]:
    return f"{figures[prefix + 'rate']:,.0f}", f"{figures[prefix + 'p99_ms']:.1f}", str(figures[f"{prefix}lost"])
