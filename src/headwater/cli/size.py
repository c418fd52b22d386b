"""`headwater size FLOW... NET`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.parameters import JSON
from headwater.cli.placement_options import FLOWS_AND_NET, Ask, with_ask
from headwater.cli.screen import print_answer, progress
from headwater.cli.writable import PICTURES, check_file
from headwater.errors import PlacementError, listed, suggestion
from headwater.flow.duration import microseconds
from headwater.place import Budget, Placement, Problem, strategy
from headwater.place.account import account
from headwater.place.explain import slower
from headwater.place.reach import reach
from headwater.place.score import MEASURES
from headwater.place.verify import violations
from headwater.place.what_if import front, headroom, least

FEWEST = ("devices", "money")


@with_ask
def size(
    references: FLOWS_AND_NET = None,
    latency: Annotated[str | None, typer.Option(help="what the slowest path may take, such as 200ms")] = None,
    fewest: Annotated[str, typer.Option(help="what there should be least of: devices or money")] = "devices",
    between: Annotated[
        str | None, typer.Option("--front", help="MEASURE,MEASURE: what less of the one costs in the other")
    ] = None,
    points: Annotated[int, typer.Option(help="placements of the front, at most")] = 5,
    picture: Annotated[Path | None, typer.Option(help="draw the front to this PNG or SVG file")] = None,
    as_json: JSON = False,
    *,
    ask: Ask,
) -> None:
    """How much is enough: the fewest devices, how far rates can grow, and what one measure costs in another.

    Exits with 1 if no placement is found that is fast enough.

    Examples:

    headwater size flow.py net.toml --rate 1000 --latency 200ms

    headwater size flow.py net.toml --front critical,money --picture front.png
    """
    if not references or len(references) < 2:
        raise PlacementError("say what to size and where: FLOW NET")
    if fewest not in FEWEST:
        raise PlacementError(f"--fewest is {listed(FEWEST)}; got {fewest!r}")
    measures = _measures(between)
    if picture is not None and measures is None:
        raise PlacementError("--picture draws a front; say between which measures with --front, such as critical,money")
    check_file("--picture", picture, PICTURES)
    target_s = microseconds(latency) / 1e6 if latency is not None else None
    budget = ask.budget()
    where = nets.read(Path(references[-1]))
    problem = ask.problem(references[:-1], where)
    with progress("sizing"):
        placement = (
            least(problem, fewest, latency_s=target_s, budget=budget)
            if target_s is not None
            else strategy("best")(problem, budget)
        )
        document: dict[str, Any] = {
            "problem": problem.name,
            "latency_s": target_s,
            "fewest": fewest,
            "plan": account(placement),
        }
        if placement.device is not None:
            document["room"] = _room(placement, budget)
            if measures is not None:
                document["front"] = _front(problem, measures, points, budget, picture)
    print_answer(document, _lines(document), as_json=as_json)
    if placement.device is None:
        raise typer.Exit(1)


def _measures(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MEASURES:
            raise PlacementError(
                f"there is no measure {name!r}; measures are {listed(MEASURES)}{suggestion(name, MEASURES)}"
            )
    if len(names) != 2 or names[0] == names[1]:
        raise PlacementError(f"--front is between two measures, such as critical,money; got {text!r}")
    return names[0], names[1]


def _room(placement: Placement, budget: Budget) -> dict[str, Any]:
    """How far rates can grow as steps are placed, what stops them there, and how far if steps may move."""
    assert placement.device is not None
    as_placed = headroom(placement.problem, placement.device)
    beyond = violations(slower(placement.problem, as_placed * 1.001), placement.device.tolist())
    with_moves, _ = reach(placement.problem, budget)
    return {
        "as_placed": as_placed,
        "stopped_by": str(beyond[0]) if beyond else None,
        "if_steps_move": max(with_moves, as_placed),
    }


def _front(
    problem: Problem, measures: tuple[str, str], points: int, budget: Budget, picture: Path | None
) -> list[dict[str, Any]]:
    placements = front(problem, *measures, points=points, budget=budget)
    if picture is not None and placements:
        from headwater.place.front_picture import draw

        draw(placements, *measures, picture)
    return [
        {name: placement.score.measure(name) for name in measures}
        | {"status": placement.status, "placement": placement.by_name}
        for placement in placements
    ]


def _lines(document: dict[str, Any]) -> list[str]:
    plan = document["plan"]
    if plan["value"] is None:
        return [f"{document['problem']}: no placement is fast enough: {plan['reason']}"]
    target = "" if document["latency_s"] is None else f" within {1e3 * document['latency_s']:g} ms"
    proof = "proven least" if plan["status"] == "optimal" and document["latency_s"] is not None else "found"
    lines = [
        f"{document['problem']}{target}: {plan['measures']['devices']} devices, {plan['measures']['money']:g} per hour, "
        f"slowest path {1e3 * plan['measures']['critical']:.3f} ms ({proof})"
    ]
    lines += [f"  {step} → {device}" for step, device in plan["placement"].items()]
    room = document["room"]
    stop = f"; then {room['stopped_by']}" if room["stopped_by"] else ""
    lines.append(f"rates may grow {room['as_placed']:.3g} times as placed{stop}")
    lines.append(f"and {room['if_steps_move']:.3g} times if steps may move (found by search, not proven)")
    for row in document.get("front", []):
        numbers = ", ".join(f"{name} {row[name]:.6g}" for name in list(row)[:2])
        lines.append(f"  {numbers} ({row['status']}) on {', '.join(sorted(set(row['placement'].values())))}")
    return lines
