"""What the peers' runs have in common: messages that are due, what arrived when, and the answer of a run.

A run is open loop: message i is created at i / rate seconds, whatever became of those before it. Its latency counts from
then until the sink took its result.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WARM_S = 1.0  #: of a run that are not measured


@dataclass
class Load:
    """One run's task: which flow, on which messages, how fast and how long."""

    flow: str
    messages: list[bytes]
    notes: dict[str, tuple[str, str]]
    rate: float
    seconds: float
    check: Path | None  #: put all results of all messages, sent once, into this file instead of measuring
    tall: bool = False  #: a record for each observation of a message
    started: float = 0.0
    sent: int = 0
    warm: tuple[int, float] | None = None  #: messages sent, and processor time taken, when the warm-up was over

    def due(self, most: int) -> list[tuple[int, bytes]] | None:
        """Return the messages that are due and not sent yet, with their numbers; None when the run is over."""
        if self.check is not None:
            upto = min(self.sent + most, len(self.messages))
            if self.sent == upto:
                return None
        else:
            now = time.perf_counter()
            self.started = self.started or now
            if self.warm is None and now - self.started > WARM_S:
                self.warm = self.sent, time.process_time()
            if now - self.started > WARM_S + self.seconds:
                return None
            upto = min(int((now - self.started) * self.rate), self.sent + most)
        many = len(self.messages)
        batch = [(i, self.messages[i % many]) for i in range(self.sent, upto)]
        self.sent = upto
        return batch


@dataclass
class Taken:
    """What a sink took: results of a batch of messages at a moment."""

    load: Load
    batches: list[tuple[float, list[int]]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def take(self, results: list[Any]) -> None:
        """Take results; each begins with the number of its message."""
        if self.load.check is not None:
            self.results += results
        else:
            self.batches.append((time.perf_counter(), [result[0] for result in results]))


def answer(load: Load, sinks: list[Taken], ratio: float) -> dict[str, Any]:
    """Return what came out per second, as messages (`ratio` results each), and how late, after the warm-up."""
    first, last = load.started + WARM_S, load.started + WARM_S + load.seconds
    ages: list[float] = []
    for sink in sinks:
        for at, numbers in sink.batches:
            if first <= at < last:
                ages += [at - load.started - number / load.rate for number in numbers]
    ages.sort()
    sent, cpu_s = load.warm or (0, 0.0)
    return {
        "cpu_us": 1e6 * (time.process_time() - cpu_s) / max(1, load.sent - sent),
        "out_hz": len(ages) / load.seconds / ratio,
        "p50_ms": 1e3 * ages[len(ages) // 2] if ages else float("inf"),
        "p99_ms": 1e3 * ages[min(len(ages) - 1, int(len(ages) * 0.99))] if ages else float("inf"),
        "sent": load.sent,
    }


def options() -> argparse.ArgumentParser:
    """Return what can be asked for on the command line."""
    options = argparse.ArgumentParser()
    options.add_argument("flow", choices=["etl", "stats", "pred"])
    options.add_argument("--messages", type=Path, required=True)
    options.add_argument("--notes", type=Path, required=True)
    options.add_argument("--rate", type=float, default=1000.0)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--check", type=Path)
    options.add_argument("--steps", action="store_true", help="only say what each step does per second")
    options.add_argument("--tall", action="store_true", help="a record for each observation of a message")
    return options


def main(run: Callable[[Load], tuple[list[Taken], float]], steps: Callable[[Load], dict[str, float]]) -> None:
    """Read the command line, run, and print one JSON document."""
    arguments = options().parse_args()
    messages = arguments.messages.read_bytes().splitlines()
    notes = {sensor: tuple(words) for sensor, words in json.loads(arguments.notes.read_text()).items()}
    load = Load(arguments.flow, messages, notes, arguments.rate, arguments.seconds, arguments.check, arguments.tall)
    if arguments.steps:
        print(json.dumps(steps(load)))
        return
    sinks, ratio = run(load)
    if load.check is not None:
        lines = [json.dumps(result) for sink in sinks for result in sink.results]
        load.check.write_text("\n".join(lines))
        print(json.dumps({"results": len(lines)}))
    else:
        print(json.dumps(answer(load, sinks, ratio)))


def per_second(functions: dict[str, Callable[[Any], Any]], items: list[Any]) -> dict[str, float]:
    """Return how many items each function does in a second, one after the other on the results of the one before."""
    rates = {}
    for name, function in functions.items():
        start = time.perf_counter()
        items = [function(item) for item in items]
        rates[name] = len(items) / (time.perf_counter() - start)
        items = [item for item in items if item is not None]
    return rates
