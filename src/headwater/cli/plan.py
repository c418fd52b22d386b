"""`headwater plan FLOW... NET`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.parameters import JSON
from headwater.cli.placement import read_placement
from headwater.cli.placement_options import CASE, FLOWS_AND_NET, PROBLEM, RESOURCES, Ask, with_ask
from headwater.cli.question import Question, number, of_file, pairs, whole, with_constraints
from headwater.cli.screen import print_answer, progress
from headwater.cli.site_web import PLAN_LISTEN, PlanWebListen, check_dashboard
from headwater.cli.writable import PICTURES, check_file
from headwater.errors import PlacementError
from headwater.net.arrays import Ints
from headwater.net.edit import with_devices
from headwater.net.net import Net
from headwater.place import Budget, Placement, Problem, strategy
from headwater.place.account import account
from headwater.place.comparison import compare, render_comparison, render_repair, repair_account
from headwater.place.merge import by_flow
from headwater.place.render import render
from headwater.place.repair import repair
from headwater.place.strategies import MODULES
from headwater.place.why import render_why
from headwater.place.why import why as reasons


@with_ask
def plan(
    references: FLOWS_AND_NET = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="write the plan to this file, for 'headwater simulate FILE'")
    ] = None,
    strategy_name: Annotated[str, typer.Option("--strategy", help=f"how to search: {', '.join(MODULES)}")] = "best",
    objective: Annotated[
        str | None, typer.Option(help="what to minimise, such as 'critical + 0.1 * money then devices'")
    ] = None,
    anonymise: Annotated[list[str] | None, typer.Option(help="STEP whose output may go anywhere")] = None,
    together: Annotated[list[str] | None, typer.Option(help="STEP,STEP: share a device")] = None,
    at_most: Annotated[list[str] | None, typer.Option(help="MEASURE=LIMIT, such as critical=0.2")] = None,
    copies: Annotated[
        list[str] | None, typer.Option(help="STEP=NUMBER: share a step's records out to so many copies")
    ] = None,
    problem: PROBLEM = None,
    case: CASE = None,
    resources: RESOURCES = "liberal",
    gap: Annotated[float, typer.Option(help="stop when value and bound are this close")] = 0.0,
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
        Path | None, typer.Option("--from", help="an earlier plan, or its JSON: mend it, moving only what must move")
    ] = None,
    lost: Annotated[list[str] | None, typer.Option(help="DEVICE that is gone since the plan of --from")] = None,
    picture: Annotated[Path | None, typer.Option(help="draw the flow over the net to this PNG or SVG file")] = None,
    explain: Annotated[bool, typer.Option(help="when nothing fits, search for the reason and a way out")] = True,
    web: Annotated[
        bool, typer.Option("--web", help="plan in a browser, until stopped: FLOW... NET... are what to choose from")
    ] = False,
    web_listen: PlanWebListen = None,
    state: Annotated[
        Path | None,
        typer.Option(help="with --web: the state folder of the coordinator that deploys [default: .headwater/deploy]"),
    ] = None,
    as_json: JSON = False,
    *,
    ask: Ask,
) -> None:
    """Choose where each step runs, and account for it. Exits with 1 if nothing fits.

    Several flows are placed together: each counts in the limits of all, and their steps are called FLOW/STEP.

    Examples:

    headwater plan flow.py net.toml --rate 1000 --why --output plan.json

    headwater plan flow.py net.toml --add barn=gateway

    headwater plan one.py two.py net.toml

    headwater plan flow.py net.toml --from plan.json --lost barn/1 --rate 2000

    headwater plan flow.py net.toml --web
    """
    constraints = dataclasses.replace(
        ask.constraints(),
        together=tuple(tuple(text.split(",")) for text in together or ()),
        anonymise=frozenset(anonymise or ()),
        at_most={name: number("--at-most", text) for name, text in pairs("--at-most", at_most).items()},
        closed=frozenset((*(ask.close or ()), *(lost or ()))),
    )
    numbers = {step: whole("--copies", text) for step, text in pairs("--copies", copies).items()}
    solve, budget = strategy(strategy_name), ask.budget(objective, gap)
    _check_questions(add, before, lost, problem)
    web_at = check_dashboard(web, web_listen, PLAN_LISTEN)
    if web:
        from headwater.cli.planning import plan_in_browser

        _check_web_alone(problem=problem, add=add, before=before, output=output, picture=picture, copies=copies)
        plan_in_browser(references or [], ask, constraints, budget, state, web_at)
        return
    flows, net = (
        references[:-1] if references else [],
        Path(references[-1]) if references and len(references) > 1 else None,
    )
    if problem is None and (not flows or net is None):
        raise PlacementError("say what to place and where: FLOW NET, or --problem FILE")
    if output is not None:
        _check_output(output, flows, add)
    check_file("--picture", picture, PICTURES)
    if problem is not None:
        first = with_constraints(of_file(problem, case, ask.rate, resources), numbers, constraints)
    else:
        assert net is not None
        where = nets.read(net)
        larger = with_added(where, add or [])

        def on(question: Question) -> Problem:
            result = question.on(where, numbers, constraints, places=before is None)
            if before is not None:
                read_placement(before, result)
            return result

        question = ask.question(flows, on)
        first = on(question)
    with progress("placing"):
        if before is not None:
            old = read_placement(before, first)
            first = _with_sources_at(first, old)
            placement = repair(first, old, budget)
            document = account(placement) | repair_account(old, placement)
        elif add:
            placement = solve(question.on(larger, numbers, constraints), budget)
            document = compare(solve(first, budget), placement) | {"added": add}
        else:
            placement = solve(first, budget)
            document = account(placement)
        document |= _explanation(placement, budget, explain)
        if why and placement.device is not None:
            document["why"] = [dataclasses.asdict(reason) for reason in reasons(placement)]
    if len(flows) > 1:
        document["flows"] = by_flow(placement, (flow.name for flow in question.flows))
    if output is not None and placement.device is not None:
        assert net is not None
        question.plan(placement, flows[0], net, numbers).save(output)
        document["output"] = str(output)
    if picture is not None and placement.device is not None:
        from headwater.place.picture import draw

        draw(placement, picture)
        document["picture"] = str(picture)
    print_answer(document, _lines(document), as_json=as_json)
    if placement.device is None:
        raise typer.Exit(1)


def _check_questions(add: list[str] | None, before: Path | None, lost: list[str] | None, problem: Path | None) -> None:
    if lost and before is None:
        raise PlacementError("--lost says what is gone since an earlier plan; give that with --from, or use --close")
    if add and before is not None:
        raise PlacementError("--add asks for a new plan and --from for the old one, mended; ask one after the other")
    if add and problem is not None:
        raise PlacementError("--add changes a net, and --problem brings its own; give FLOW NET")


def _check_web_alone(**options: object) -> None:
    """Refuse what a page does not ask about."""
    for name, value in options.items():
        if value:
            option = "from" if name == "before" else name
            raise PlacementError(f"--web plans flows on nets, and a page knows nothing of --{option}; leave it out")


def _check_output(output: Path, flows: list[str], add: list[str] | None) -> None:
    """Say what cannot be written before anything is measured."""
    if len(flows) != 1:
        what = f"got {len(flows)} flows" if flows else "--problem has none"
        raise PlacementError(f"--output writes the plan of one flow; {what}")
    if add:
        raise PlacementError("--add asks of a net that is in no file, so that no plan can name it; leave out --output")
    if output.suffix != ".json":
        raise PlacementError(f"--output writes JSON: its file must end in .json; got '{output}'")
    check_file("--output", output)


def with_added(net: Net, texts: list[str]) -> Net:
    """The net with devices added, as ZONE=CLASS or ZONE=CLASS*NUMBER says."""
    for zone, text in (pair for single in texts for pair in pairs("--add", [single]).items()):
        kind, star, count = text.rpartition("*")
        net = with_devices(net, zone, kind, whole("--add", count)) if star else with_devices(net, zone, text)
    return net


def _lines(document: dict[str, Any]) -> list[str]:
    lines = []
    if "before" in document:
        lines += [f"with {', '.join(document['added'])}", *render_comparison(document), ""]
        lines.append(render(document["after"] | {k: document[k] for k in ("explanation",) if k in document}))
    else:
        lines += [*render_repair(document), ""] if "moves" in document else []
        lines.append(render(document))
    if "why" in document:
        lines += ["", *render_why(document["why"], document.get("after", document)["objective"])]
    if "output" in document:
        lines += ["", f"written to {document['output']}; rehearse it with 'headwater simulate {document['output']}'"]
    return lines


def _with_sources_at(problem: Problem, old: Ints) -> Problem:
    """Sources that are not pinned stay where an earlier plan has them, unless that is lost."""
    pinned = problem.pinned.copy()
    for step in problem.sources:
        if pinned[step] < 0 and int(old[step]) not in problem.closed:
            pinned[step] = old[step]
    return dataclasses.replace(problem, pinned=pinned)


def _explanation(placement: Placement, budget: Budget, is_wanted: bool) -> dict[str, Any]:
    if placement.device is not None or not is_wanted:
        return {}
    from headwater.place.explain import explain

    return {"explanation": dataclasses.asdict(explain(placement.problem, budget))}
