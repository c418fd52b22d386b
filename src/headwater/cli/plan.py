"""`headwater plan FLOW NET`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.locate import find_flow
from headwater.cli.run import JSON
from headwater.cli.screen import console, err, print_json, progress
from headwater.errors import PlacementError, listed, suggestion
from headwater.flow.profile import Profile
from headwater.place import Budget, Model, Objective, Placement, Problem, Wishes, strategy, wished
from headwater.place.account import account
from headwater.place.copies import with_copies
from headwater.place.strategies import MODULES
from headwater.place.tell import tell

DESKTOP_IPS = 30e9
"""Instructions per second that a profile's machine is taken to have when nothing else is said."""

FLOW = Annotated[
    str | None, typer.Argument(help="module:name, path/to/flow.py[:name], or a bundled flow such as riot:etl")
]
NET = Annotated[Path | None, typer.Argument(help="net file: .toml, .json or .npz")]
RATE = Annotated[list[str] | None, typer.Option(help="records/s of every source, or NAME=RATE")]
PROFILE = Annotated[Path | None, typer.Option(help="profile file of 'headwater profile'; measured now if left out")]
MEASURED = Annotated[
    str | None, typer.Option(help="class of the net, or instructions/s, that the profile was measured on")
]
PROBLEM = Annotated[Path | None, typer.Option(help="a file of CEP dataflows instead of FLOW and NET")]
CASE = Annotated[str | None, typer.Option(help="which dataflow of the file [default: its first]")]
RESOURCES = Annotated[str, typer.Option(help="for --problem: liberal or conservative")]
STRATEGY = Annotated[str, typer.Option(help=f"how to search: {', '.join(MODULES)}")]
OBJECTIVE = Annotated[str | None, typer.Option(help="what to minimise, such as 'critical + 0.1 * money then devices'")]
MODEL = Annotated[str, typer.Option(help="how time is reckoned: queue, shared or round-robin")]
TIME = Annotated[float, typer.Option("--time", help="seconds to search")]
SEED = Annotated[int, typer.Option(help="the same seed gives the same answer")]
PIN = Annotated[list[str] | None, typer.Option(help="STEP=DEVICE: where a step must run")]
KEEP = Annotated[list[str] | None, typer.Option(help="STEP=TRUST: its output must not leave this trust zone")]
ANONYMISE = Annotated[list[str] | None, typer.Option(help="STEP whose output may go anywhere")]
TOGETHER = Annotated[list[str] | None, typer.Option(help="STEP,STEP: share a device")]
AT_MOST = Annotated[list[str] | None, typer.Option(help="MEASURE=LIMIT, such as critical=0.2")]
COPIES = Annotated[list[str] | None, typer.Option(help="STEP=NUMBER: share a step's records out to so many copies")]
CLOSE = Annotated[list[str] | None, typer.Option(help="DEVICE that must not be used")]


def plan(
    flow: FLOW = None,
    net: NET = None,
    strategy_name: Annotated[str, typer.Option("--strategy", help=f"how to search: {', '.join(MODULES)}")] = "best",
    objective: OBJECTIVE = None,
    rate: RATE = None,
    profile: PROFILE = None,
    measured_on: MEASURED = None,
    model: MODEL = "queue",
    pin: PIN = None,
    keep: KEEP = None,
    anonymise: ANONYMISE = None,
    together: TOGETHER = None,
    at_most: AT_MOST = None,
    close: CLOSE = None,
    copies: COPIES = None,
    problem: PROBLEM = None,
    case: CASE = None,
    resources: RESOURCES = "liberal",
    time_s: TIME = 10.0,
    gap: Annotated[float, typer.Option(help="stop when value and bound are this close")] = 0.0,
    seed: SEED = 0,
    picture: Annotated[Path | None, typer.Option(help="draw the flow over the net to this PNG or SVG file")] = None,
    explain: Annotated[bool, typer.Option(help="when nothing fits, search for the reason and a way out")] = True,
    as_json: JSON = False,
) -> None:
    """Choose where each step runs, and account for it. Exits with 1 if nothing fits."""
    wishes = Wishes(
        pins=_pairs("--pin", pin),
        together=tuple(tuple(text.split(",")) for text in together or ()),
        keep=_pairs("--keep", keep),
        anonymise=frozenset(anonymise or ()),
        at_most={name: _number("--at-most", text) for name, text in _pairs("--at-most", at_most).items()},
        closed=frozenset(close or ()),
    )
    numbers = {step: _whole("--copies", text) for step, text in _pairs("--copies", copies).items()}
    solve, budget = strategy(strategy_name), search(time_s, gap, seed, objective)
    asked = asked_for(flow, net, rate, profile, measured_on, model, problem, case, resources)
    for step, number in numbers.items():
        asked = with_copies(asked, step, number)
    asked = wished(asked, wishes)
    with progress("placing"):
        found = solve(asked, budget)
        document = account(found) | _explained(found, budget, explain)
    if picture is not None and found.device is not None:
        from headwater.place.picture import draw

        draw(found, picture)
        document["picture"] = str(picture)
    if as_json:
        print_json(document)
    else:
        console.print(tell(document), markup=False, highlight=False, soft_wrap=True)
    if found.device is None:
        raise typer.Exit(1)


def _explained(found: Placement, budget: Budget, wanted: bool) -> dict[str, Any]:
    if found.device is not None or not wanted:
        return {}
    from headwater.place.explain import explain

    return {"explanation": dataclasses.asdict(explain(found.problem, budget))}


def search(time_s: float, gap: float, seed: int, objective: str | None) -> Budget:
    """How to search, as the command line says it; checked before anything is measured."""
    if not 0 <= time_s < float("inf"):
        raise PlacementError(f"--time must be 0 s or more; got {time_s}")
    if not 0 <= gap <= 1:
        raise PlacementError(f"--gap must be from 0 to 1; got {gap}")
    return Budget(time_s=time_s, gap=gap, seed=seed, objective=Objective.parse(objective) if objective else None)


def asked_for(
    flow: str | None,
    net: Path | None,
    rate: list[str] | None,
    profile: Path | None,
    measured_on: str | None,
    model: str,
    problem: Path | None,
    case: str | None,
    resources: str,
) -> Problem:
    """The problem that a command line describes: a flow on a net, or a dataflow of a file."""
    if problem is not None:
        return _of_file(problem, case, _number("--rate", rate[0]) if rate else 100.0, resources)
    if flow is None or net is None:
        raise PlacementError("say what to place and where: FLOW NET, or --problem FILE")
    from headwater.place.from_flow import problem_of

    models = [known.value for known in Model]
    if model not in models:
        raise PlacementError(f"there is no model {model!r}; models are {listed(models)}{suggestion(model, models)}")
    rates: float | dict[str, float] = 1000.0
    if rate and "=" in rate[0]:
        rates = {name: _number("--rate", text) for name, text in _pairs("--rate", rate).items()}
    elif rate:
        rates = _number("--rate", rate[0])
    wanted, where = find_flow(flow), nets.read(net)
    if profile is not None:
        measured = Profile.load(profile)
    else:
        from headwater.engine.profiler import profile as measure

        with progress("measuring"):
            measured = measure(wanted, records=20_000)
    ips = _speed(measured_on, measured, where)
    return problem_of(wanted, where, measured, rates, measured_ips=ips, model=Model(model))


def _speed(measured_on: str | None, measured: Profile, net: nets.Net) -> float | None:
    classes = {c.name: c.cpu_ips for c in net.classes}
    if measured_on is None:
        if measured.device in classes:
            return None
        err.print(
            f"the profile was measured on {measured.device}, which is no class of {net.name}; taking "
            f"{DESKTOP_IPS:.0e} instructions/s (say --measured-on to change that)"
        )
        return DESKTOP_IPS
    if measured_on in classes:
        return classes[measured_on]
    return _number("--measured-on", measured_on)


def _of_file(path: Path, case: str | None, rate_hz: float, resources: str) -> Problem:
    from headwater.place.cases import ghosh

    dags = {dag.name: dag for dag in ghosh.read(path)}
    if not dags:
        raise PlacementError(f"file '{path}' holds no dataflow")
    if case is None:
        case = next(iter(dags))
        if len(dags) > 1:
            err.print(f"placing {case}, the first of {len(dags)} dataflows; choose with --case")
    if case not in dags:
        raise PlacementError(f"file '{path}' has no dataflow '{case}'{suggestion(case, dags)}")
    return ghosh.problem(dags[case], rate_hz, resources)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    out = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise PlacementError(f"{option} is written NAME=VALUE; got {text!r}")
        out[name] = value
    return out


def _whole(option: str, text: str) -> int:
    if not text.isdigit():
        raise PlacementError(f"{option} needs a whole number; got {text!r}")
    return int(text)


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise PlacementError(f"{option} needs a number; got {text!r}") from None
    if not 0 <= number < float("inf"):
        raise PlacementError(f"{option} needs a number of 0 or more; got {text!r}")
    return number
