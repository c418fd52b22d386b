"""`headwater simulate FLOW NET`, `headwater simulate PLAN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from headwater import net as nets
from headwater import sim
from headwater.cli.parameters import JSON
from headwater.cli.placement import read_placement
from headwater.cli.placement_options import CASE, PROBLEM, RESOURCES, Ask, with_ask
from headwater.cli.question import MODEL, bind_plan, of_file, with_constraints
from headwater.cli.run import parse_take
from headwater.cli.screen import console, err, print_json, print_report, progress
from headwater.engine.policy import DEFAULT, POLICIES
from headwater.errors import PlacementError, RunError, listed, suggestion
from headwater.flow.duration import microseconds
from headwater.net.arrays import Ints
from headwater.place import Model, Placement, Plan, Problem, strategy, violations
from headwater.place.strategies import MODULES
from headwater.sim.settings import RUNNERS

MODES = ("queues", "engine")
PLANS = (".json", ".toml")


@with_ask
def simulate(
    flow: Annotated[
        str | None,
        typer.Argument(metavar="FLOW|PLAN", help="a flow, or alone a plan file of 'headwater plan --output'"),
    ] = None,
    net: Annotated[Path | None, typer.Argument(metavar="NET", help="net file: .toml, .json or .npz")] = None,
    placement: Annotated[
        Path | None, typer.Option(help="the JSON of 'headwater plan'; planned now if left out")
    ] = None,
    strategy_name: Annotated[str, typer.Option("--strategy", help=f"how to plan: {', '.join(MODULES)}")] = "best",
    objective: Annotated[str | None, typer.Option(help="what the plan minimises")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="queues (the model as planned) or engine (our scheduler on every device); engine unless --model is another"
        ),
    ] = None,
    duration: Annotated[str, typer.Option("--for", help="how long to play, such as 60s")] = "10s",
    arrivals: Annotated[
        str, typer.Option(help="poisson, constant, or a file of moments in seconds, one per line")
    ] = "poisson",
    service: Annotated[str | None, typer.Option(help="exponential or constant time per record")] = None,
    policy: Annotated[str, typer.Option(help=f"engine mode: {', '.join(POLICIES)}")] = DEFAULT,
    runner: Annotated[str, typer.Option(help=f"engine mode: {' or '.join(RUNNERS)}, a thread per step")] = "engine",
    workers: Annotated[int, typer.Option(help="engine mode: workers per device; plans reckon with one")] = 1,
    take: Annotated[str, typer.Option(help="engine mode: records per turn: all, half, or a number")] = "50",
    problem: PROBLEM = None,
    case: CASE = None,
    resources: RESOURCES = "liberal",
    as_json: JSON = False,
    *,
    ask: Ask,
) -> None:
    """Play a placement in virtual time and report it like a run; the same seed gives the same trace.

    Examples:

    headwater simulate plan.json --for 20s

    headwater simulate plan.json --rate 4000

    headwater simulate flow.py net.toml --rate 2000 --pin alarms=cloud
    """
    if mode is not None and mode not in MODES:
        raise RunError(f"there is no mode {mode!r}; modes are {listed(MODES)}{suggestion(mode, MODES)}")
    seconds, coming, kind = microseconds(duration) / 1e6, _arrivals(arrivals), _service(service)
    queues = sim.QueueOptions(seconds, ask.seed, coming, kind)
    engine = sim.EngineOptions(seconds, ask.seed, coming, policy, parse_take(take), workers, runner=runner)
    solve, budget = strategy(strategy_name), ask.budget(objective)
    if flow is not None and net is None and problem is None and Path(flow).suffix in PLANS:
        _check_plan_alone(ask, placement=placement, strategy=strategy_name, objective=objective)
        solution = bind_plan(Plan.load(flow), ask.rate, ask.profile, ask.measured_on, ask.every)
        instance, device = solution.problem, solution.device
    else:
        instance = _problem_of(flow, net, problem, case, resources, ask, places=placement is None)
        device = _read_valid(placement, instance) if placement is not None else _devices(solve(instance, budget))
    assert device is not None
    mode = mode or ("engine" if instance.model is Model.ENGINE else "queues")
    with progress("playing"):
        report = (
            sim.run_queues(instance, device, queues) if mode == "queues" else sim.run_engine(instance, device, engine)
        )
    names = {s: instance.net.device_name(int(d)) for s, d in zip(instance.steps, device, strict=True)}
    if as_json:
        print_json(report.to_json() | {"placement": names})
        return
    print_report(report)
    for sink, row in report.extra.get("sinks", {}).items():
        expected = "no end" if row["predicted_s"] is None else f"{1e3 * row['predicted_s']:.3f} ms"
        console.print(f"{sink}: predicted {expected}, simulated {1e3 * row['simulated_s']:.3f} ms on average")


def _check_plan_alone(ask: Ask, **options: object) -> None:
    """Refuse what a plan has already decided."""
    usual = {"strategy": "best", "model": MODEL}
    decisions = options | {name: getattr(ask, name) for name in ("model", "pin", "keep", "close")}
    for name, value in decisions.items():
        if value != usual.get(name):
            raise PlacementError(
                f"the plan says where its steps run, and --{name} asks to plan anew: give FLOW NET with it"
            )


def _problem_of(
    flow: str | None,
    net: Path | None,
    problem: Path | None,
    case: str | None,
    resources: str,
    ask: Ask,
    *,
    places: bool,
) -> Problem:
    if problem is not None:
        return with_constraints(of_file(problem, case, ask.rate, resources), None, ask.constraints())
    if flow is None or net is None:
        raise PlacementError("say what to play: FLOW NET, a plan file, or --problem FILE")
    where = nets.read(net)
    return ask.problem([flow], where, places=places)


def _devices(placement: Placement) -> Ints:
    if placement.device is None:
        err.print(f"nothing to play: {placement.reason}")
        raise typer.Exit(1)
    return placement.device


def _read_valid(path: Path, problem: Problem) -> Ints:
    device = read_placement(path, problem)
    breaches = violations(problem, device.tolist())
    if breaches:
        raise PlacementError(f"placement file '{path}' is not valid here: {breaches[0]}")
    return device


def _arrivals(text: str) -> sim.Arrivals:
    if text == "poisson":
        return sim.Poisson()
    if text == "constant":
        return sim.Constant()
    path = Path(text)
    if not path.exists():
        raise RunError(f"--arrivals is poisson, constant or a file; there is no file {text!r}")
    try:
        return sim.RecordedArrivals(np.array([float(line) for line in path.read_text().split()]))
    except ValueError as slip:
        raise RunError(f"arrivals file {text!r} must hold one number per line: {slip}") from None


def _service(text: str | None) -> sim.Service | None:
    if text is None:
        return None
    names = [service.value for service in sim.Service]
    if text not in names:
        raise RunError(f"--service is one of {listed(names)}; got {text!r}")
    return sim.Service(text)
