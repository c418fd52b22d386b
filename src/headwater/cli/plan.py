"""`headwater plan FLOW... NET`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.placed import read_placement
from headwater.cli.question import MODEL as DEFAULT_MODEL
from headwater.cli.question import number, of_file, pairs, question_of, whole, with_constraints
from headwater.cli.run import JSON
from headwater.cli.screen import console, print_json, progress
from headwater.errors import PlacementError
from headwater.net.arrays import Ints
from headwater.net.edit import with_devices
from headwater.net.net import Net
from headwater.place import Budget, Constraints, Objective, Placement, Problem, strategy
from headwater.place.account import account
from headwater.place.compared import compared, mended, tell_compared, tell_mended
from headwater.place.joined import parted
from headwater.place.render import render
from headwater.place.repair import repair
from headwater.place.strategies import MODULES
from headwater.place.why import tell_why
from headwater.place.why import why as reasons

GIVEN = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FLOW... NET", help="flows (module:name, path/to/flow.py[:name], riot:etl), and last the net file"
    ),
]
FLOW = Annotated[
    str | None, typer.Argument(help="module:name, path/to/flow.py[:name], or a bundled flow such as riot:etl")
]
NET = Annotated[Path | None, typer.Argument(help="net file: .toml, .json or .npz")]
RATE = Annotated[list[str] | None, typer.Option(help="records/s of every source, or NAME=RATE")]
PROFILE = Annotated[Path | None, typer.Option(help="profile file of 'headwater profile'; measured now if left out")]
PROFILES = Annotated[
    list[Path] | None,
    typer.Option(help="profile file of 'headwater profile', one per flow; measured now if left out"),
]
MEASURED = Annotated[
    str | None, typer.Option(help="class of the net, or instructions/s, that the profile was measured on")
]
PROBLEM = Annotated[Path | None, typer.Option(help="a file of CEP dataflows instead of FLOW and NET")]
CASE = Annotated[str | None, typer.Option(help="which dataflow of the file [default: its first]")]
RESOURCES = Annotated[str, typer.Option(help="for --problem: liberal or conservative")]
STRATEGY = Annotated[str, typer.Option(help=f"how to search: {', '.join(MODULES)}")]
OBJECTIVE = Annotated[str | None, typer.Option(help="what to minimise, such as 'critical + 0.1 * money then devices'")]
MODEL = Annotated[
    str, typer.Option(help="how time is reckoned: as the engine does, or the papers' queue, shared or round-robin")
]
TIME = Annotated[float, typer.Option("--time", help="seconds to search")]
SEED = Annotated[int, typer.Option(help="the same seed gives the same answer")]
PIN = Annotated[
    list[str] | None, typer.Option(help="STEP=DEVICE: where a step must run; sources need it, or a sensor in the net")
]
KEEP = Annotated[list[str] | None, typer.Option(help="STEP=TRUST: its output must not leave this trust zone")]
ANONYMISE = Annotated[list[str] | None, typer.Option(help="STEP whose output may go anywhere")]
TOGETHER = Annotated[list[str] | None, typer.Option(help="STEP,STEP: share a device")]
AT_MOST = Annotated[list[str] | None, typer.Option(help="MEASURE=LIMIT, such as critical=0.2")]
COPIES = Annotated[list[str] | None, typer.Option(help="STEP=NUMBER: share a step's records out to so many copies")]
CLOSE = Annotated[list[str] | None, typer.Option(help="DEVICE that must not be used")]


def plan(
    given: GIVEN = None,
    strategy_name: Annotated[str, typer.Option("--strategy", help=f"how to search: {', '.join(MODULES)}")] = "best",
    objective: OBJECTIVE = None,
    rate: RATE = None,
    profile: PROFILES = None,
    measured_on: MEASURED = None,
    model: MODEL = DEFAULT_MODEL,
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
    why: Annotated[
        bool, typer.Option(help="say of each step what the next best device costs and what forbids better")
    ] = False,
    add: Annotated[
        list[str] | None,
        typer.Option(
            help="ZONE=CLASS or ZONE=CLASS*NUMBER: what if the net had these too? before and after side by side"
        ),
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--from", help="the JSON of an earlier plan: mend it, moving only what must move")
    ] = None,
    lost: Annotated[list[str] | None, typer.Option(help="DEVICE that is gone since the plan of --from")] = None,
    picture: Annotated[Path | None, typer.Option(help="draw the flow over the net to this PNG or SVG file")] = None,
    explain: Annotated[bool, typer.Option(help="when nothing fits, search for the reason and a way out")] = True,
    as_json: JSON = False,
) -> None:
    """Choose where each step runs, and account for it. Exits with 1 if nothing fits.

    Several flows are placed together: each counts in the limits of all, and their steps are called FLOW/STEP.

    Examples:

    headwater plan flow.py net.toml --rate 1000 --why

    headwater plan flow.py net.toml --add barn=gateway

    headwater plan one.py two.py net.toml

    headwater plan flow.py net.toml --from plan.json --lost barn/1 --rate 2000
    """
    constraints = Constraints(
        pins=pairs("--pin", pin),
        together=tuple(tuple(text.split(",")) for text in together or ()),
        keep=pairs("--keep", keep),
        anonymise=frozenset(anonymise or ()),
        at_most={name: number("--at-most", text) for name, text in pairs("--at-most", at_most).items()},
        closed=frozenset((*(close or ()), *(lost or ()))),
    )
    numbers = {step: whole("--copies", text) for step, text in pairs("--copies", copies).items()}
    solve, budget = strategy(strategy_name), search(time_s, gap, seed, objective)
    _check_questions(add, before, lost, problem)
    flows, net = given[:-1] if given else [], Path(given[-1]) if given and len(given) > 1 else None
    if problem is None and (not flows or net is None):
        raise PlacementError("say what to place and where: FLOW NET, or --problem FILE")

    if problem is not None:
        first = with_constraints(of_file(problem, case, rate, resources), numbers, constraints)
    else:
        assert net is not None
        where = nets.read(net)
        larger = with_added(where, add or [])
        question = question_of(flows, rate, profile, measured_on, model)
        first = question.on(where, numbers, constraints, places=before is None)
    with progress("placing"):
        if before is not None:
            old = read_placement(before, first)
            first = _with_sources_at(first, old)
            found = repair(first, old, budget)
            document = account(found) | mended(old, found)
        elif add:
            found = solve(question.on(larger, numbers, constraints), budget)
            document = compared(solve(first, budget), found) | {"added": add}
        else:
            found = solve(first, budget)
            document = account(found)
        document |= _explained(found, budget, explain)
        if why and found.device is not None:
            document["why"] = [dataclasses.asdict(reason) for reason in reasons(found)]
    if len(flows) > 1:
        document["flows"] = parted(found, (flow.name for flow in question.flows))
    if picture is not None and found.device is not None:
        from headwater.place.picture import draw

        draw(found, picture)
        document["picture"] = str(picture)
    if as_json:
        print_json(document)
    else:
        console.print("\n".join(_told(document)), markup=False, highlight=False, soft_wrap=True)
    if found.device is None:
        raise typer.Exit(1)


def _check_questions(add: list[str] | None, before: Path | None, lost: list[str] | None, problem: Path | None) -> None:
    if lost and before is None:
        raise PlacementError("--lost says what is gone since an earlier plan; give that with --from, or use --close")
    if add and before is not None:
        raise PlacementError("--add asks for a new plan and --from for the old one, mended; ask one after the other")
    if add and problem is not None:
        raise PlacementError("--add changes a net, and --problem brings its own; give FLOW NET")


def with_added(net: Net, texts: list[str]) -> Net:
    """The net with devices added, as ZONE=CLASS or ZONE=CLASS*NUMBER says."""
    for zone, text in (pair for single in texts for pair in pairs("--add", [single]).items()):
        kind, star, count = text.rpartition("*")
        net = with_devices(net, zone, kind, whole("--add", count)) if star else with_devices(net, zone, text)
    return net


def _told(document: dict[str, Any]) -> list[str]:
    lines = []
    if "before" in document:
        lines += [f"with {', '.join(document['added'])}", *tell_compared(document), ""]
        lines.append(render(document["after"] | {k: document[k] for k in ("explanation",) if k in document}))
    else:
        lines += [*tell_mended(document), ""] if "moves" in document else []
        lines.append(render(document))
    if "why" in document:
        lines += ["", *tell_why(document["why"], document.get("after", document)["objective"])]
    return lines


def _with_sources_at(problem: Problem, old: Ints) -> Problem:
    """Sources that are not pinned stay where an earlier plan has them, unless that is lost."""
    pinned = problem.pinned.copy()
    for step in problem.sources:
        if pinned[step] < 0 and int(old[step]) not in problem.closed:
            pinned[step] = old[step]
    return dataclasses.replace(problem, pinned=pinned)


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
