"""What is planned and run: the plant of the examples, and an application of the AELS paper on a small net of its kind."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headwater_bench
from headwater import Flow, col, engine, sim
from headwater import net as nets
from headwater.cli.locate import find_flow
from headwater.data.schema import Schema
from headwater.engine.profiler import profile as measured_profile
from headwater.errors import RunError
from headwater.flow.profile import Profile
from headwater.flow.steps import Read, Write
from headwater.place import Budget, Constraints, Plan, Problem, strategy
from headwater.place.from_flow import GATHER_S, problem_of
from headwater.sim.predict import ages_s
from headwater_bench.cases.veith import PRESETS, graph, setting
from headwater_bench.promised.ends import BEGAN, END, Aged, Due, Ints

EVERY = "100 ms"
_SAMPLED_S = 4.0  #: of records by which steps are measured
_TRIES, _TRIED_S = 5, 0.7  #: by which checkpoints are
_PLANT = Path(headwater_bench.__file__).parents[3] / "examples" / "plant"
_PROGRAM = """from pathlib import Path

from headwater_bench.promised import cases
{imports}
flow = cases.{call}
"""


@dataclass(frozen=True)
class Case:
    """A flow on a net, with a plan for it and what that expects of each path."""

    name: str
    folder: Path
    plan: Path
    net: Path
    core_ips: float  #: what a core of this machine is taken for
    expected: Mapping[tuple[str, str], float]  #: (source, sink) → seconds, by the account
    simulated: Mapping[tuple[str, str], float]
    origins: Mapping[str, int] | None  #: number of each source in its records; None where windows mix them
    checkpoint_s: float  #: that one takes on this machine, beside those of the other sites


# -- the plant --------------------------------------------------------------------------------------------------------------

PLANT_HZ = {"presses": 2000.0, "painters": 1000.0}
_MACHINES = 20  #: of each source
_SHAKE = Schema.of({"machine": str, "shake": float, "at": "time"})


def shaken(flow: Flow, folder: Path) -> Flow:
    """Return the plant's flow with records that fall due, and sinks that note their age."""
    window = {"window_ns": 10**9, "lateness_ns": 10**9}
    return flow.replaced(
        {name: Read(Due(folder, rate_hz, _SHAKE, _shakes(name))) for name, rate_hz in PLANT_HZ.items()}
        | {name: Write(Aged(folder / f"{name}.ages", **window)) for name in ("stop", "vendor")}
    )


def _shakes(name: str) -> Callable[[Ints, Ints], Mapping[str, Any]]:
    def columns(numbers: Ints, created_ns: Ints) -> dict[str, Any]:
        machines = [f"{name}-{number % _MACHINES}" for number in numbers.tolist()]
        return {"machine": machines, "shake": (numbers * 7 % 120) / 10, "at": created_ns // 1000}

    return columns


def plant(folder: Path) -> Case:
    """Plan the plant as its own example does: vibrations stay inside, the vendor's sink is in the cloud."""
    if not _PLANT.is_dir():
        raise RunError("the plant is among the examples of the repository; run this from a checkout of it")
    folder.mkdir(parents=True)
    for name in ("plant.py", "plant.toml"):
        shutil.copy(_PLANT / name, folder / name)
    call = f"shaken(plant(), Path({str(folder)!r}))"
    (folder / "shaken.py").write_text(_PROGRAM.format(imports="from plant import plant\n", call=call))
    net = nets.read(folder / "plant.toml")
    constraints = Constraints(
        pins={"presses": "press-1", "painters": "paint-1", "stop": "press-1", "vendor": "vm"},
        keep=dict.fromkeys(PLANT_HZ, "plant"),
        anonymise=frozenset({"nameless"}),
    )
    core_ips = next(kind.cpu_ips for kind in net.classes if kind.name == "controller")
    return _planned("plant", folder, folder / "shaken.py", folder / "plant.toml", PLANT_HZ, constraints, core_ips, None)


# -- an application of the AELS paper ---------------------------------------------------------------------------------------

_OPERATORS, _SEED, _SETTING = 6, 1, 0  #: the second of the paper's 13 graphs
_SLOWER = 10.0  #: than the paper's sources: this machine plays all sites at once
_LOAD = Schema.of({"n": int, "origin": int, "load": str})


def application(folder: Path) -> Flow:
    """Return the application: its operators pass on the paper's share of records; what they compute is left out.

    A stream that shares records out, and one that meets others, are steps of their own here.
    """
    shape = graph(_OPERATORS, _SEED)
    drawn = setting(shape, _SETTING, PRESETS["veith"])
    flow, streams = Flow("aels"), dict[int, Any]()
    for step in range(_OPERATORS):
        if step < shape.sources:
            load = "x" * round(float(drawn.source_bytes[step]))
            rate_hz = float(drawn.source_hz[step]) / _SLOWER
            streams[step] = flow.read(f"op-{step}", Due(folder, rate_hz, _LOAD, _loads(step, load)))
            continue
        coming = []
        for e in np.flatnonzero(shape.stream_to == step).tolist():
            tail, share = int(shape.stream_from[e]), float(shape.share[e])
            stream = streams[tail]
            if share < 1:
                stream = stream.filter(f"share of op-{tail} for op-{step}", _passes(share, 7919 + 2 * e))
            coming.append(stream)
        met = coming[0].union(f"streams of op-{step}", *coming[1:]) if len(coming) > 1 else coming[0]
        if step in shape.sinks:
            met.write(f"op-{step}", Aged(folder / f"op-{step}.ages"))
        else:
            streams[step] = met.filter(f"op-{step}", _passes(float(drawn.selectivity[step]), 104_729 + 2 * step))
    return flow


def _loads(origin: int, load: str) -> Callable[[Ints, Ints], Mapping[str, Any]]:
    return lambda numbers, created_ns: {
        "n": numbers,
        "origin": np.full(len(numbers), origin),
        "load": [load] * len(numbers),
    }


def _passes(share: float, factor: int) -> Any:
    """Return which records pass: so large a share of them, and others for each factor."""
    return (col.n * factor) % 1000 < round(1000 * share)


def aels(folder: Path) -> Case:
    """Plan the application on a cloud and two sites, its sources and sinks at sites, the longest path's in the cloud."""
    folder.mkdir(parents=True)
    (folder / "aels.py").write_text(_PROGRAM.format(imports="", call=f"application(Path({str(folder)!r}))"))
    net = nets.cloud_edge(1, 2, 2, seed=_SEED)
    nets.write(net, folder / "net.toml")
    shape = graph(_OPERATORS, _SEED)
    drawn = setting(shape, _SETTING, PRESETS["veith"])
    rates = {f"op-{step}": float(drawn.source_hz[step]) / _SLOWER for step in range(shape.sources)}
    edges = [name for name in (net.device_name(d) for d in range(len(net))) if name.startswith("site")]
    places = [*range(shape.sources), *(s for s in shape.sinks.tolist() if s != shape.critical_sink)]
    pins = {f"op-{step}": edges[number % len(edges)] for number, step in enumerate(places)}
    pins[f"op-{shape.critical_sink}"] = "cloud-0"
    origins = {f"op-{step}": step for step in range(shape.sources)}
    core_ips = min(kind.cpu_ips for kind in net.classes)
    return _planned(
        "aels", folder, folder / "aels.py", folder / "net.toml", rates, Constraints(pins=pins), core_ips, origins
    )


# -- plans ------------------------------------------------------------------------------------------------------------------


def _planned(
    name: str,
    folder: Path,
    program: Path,
    net_file: Path,
    rates: Mapping[str, float],
    constraints: Constraints,
    core_ips: float,
    origins: Mapping[str, int] | None,
) -> Case:
    flow, net = find_flow(f"{program}:flow"), nets.read(net_file)
    profile = _measured(flow, folder)
    checkpoint_s = _checkpoint_s(flow, folder, len(net.zones))

    def problem_at(rates: Mapping[str, float]) -> Problem:
        return problem_of(
            flow,
            net,
            profile,
            dict(rates),
            measured_ips=core_ips,
            constraints=constraints,
            every=EVERY,
            checkpoint_s=checkpoint_s,
        )

    placement = strategy("best")(problem_at(rates), Budget(time_s=10))
    if placement.device is None:
        raise RunError(f"there is no plan for {name}: {placement.reason}")
    plan = Plan.of(
        placement,
        flow=f"{program}:flow",
        net=net_file,
        profile=profile,
        rates_hz=dict(rates),
        measured_ips=core_ips,
        every=EVERY,
    )
    plan.save(folder / "plan.json")
    expected, simulated = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for source in rates:  # played alone: what others bring takes another way, and hardly any of the machine
        alone = problem_at({other: rate_hz if other == source else 0.0 for other, rate_hz in rates.items()})
        age_s, played = ages_s(alone, placement.device) + GATHER_S, _simulated(alone, placement.device)
        for sink in (alone.steps[number] for number in alone.sinks):
            if alone.rate_hz[alone.step(sink)] > 0:
                expected[source, sink] = float(age_s[alone.step(sink)])
                simulated[source, sink] = played[sink]
    if origins is None:
        first = min(expected, key=lambda path: expected[path])[0]  # whose records close the windows for all
        expected = {path: s for path, s in expected.items() if path[0] == first}
    return Case(name, folder, folder / "plan.json", net_file, core_ips, expected, simulated, origins, checkpoint_s)


def _measured(flow: Flow, folder: Path) -> Profile:
    """Measure the steps by records that are all due."""
    (folder / END).write_text(str(_SAMPLED_S))
    (folder / BEGAN).write_text("0.0")
    try:
        return measured_profile(flow, records=5000)
    finally:
        (folder / BEGAN).unlink()
        (folder / END).unlink()


def _checkpoint_s(flow: Flow, folder: Path, sites: int) -> float:
    """Measure what a checkpoint takes on this disk while so many engines make some; a disk has no class in a net."""
    (folder / END).write_text("1e9")
    (folder / BEGAN).write_text(repr(time.time()))
    times_s: list[float] = []
    try:
        for number in range(_TRIES):
            at = [folder / f"tried-{number}-{site}" for site in range(sites)]
            runs = [engine.start(flow, checkpoint=path, every=EVERY) for path in at]
            time.sleep(_TRIED_S)
            for run in runs:
                run.stop()
            reports = [run.wait() for run in runs]
            times_s += [report.extra["checkpoints"]["seconds"] for report in reports if report is not None]
    finally:
        for path in (folder / BEGAN, folder / END, *folder.glob("*.ages")):
            path.unlink()
    return float(np.median(times_s))


def _simulated(problem: Problem, device: Ints) -> dict[str, float]:
    """Play a plan with the engine's scheduler, sources that let records gather included; return the mean age by sink."""
    options = sim.EngineOptions(seconds=30.0, workers=1, arrivals=sim.Constant(), tick_s=2 * GATHER_S)
    sinks = sim.run_engine(problem, device, options).extra["sinks"]
    return {sink: float(row["simulated_s"]) for sink, row in sinks.items()}
