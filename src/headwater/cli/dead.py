"""`headwater dead list|show|replay`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from headwater.cli.locate import find_flow
from headwater.cli.parameters import FLOW, JSON
from headwater.cli.screen import console, err, print_json, progress
from headwater.errors import FlowError, listed, suggestion
from headwater.io.dead import DeadLetterFolder, Letter

app = typer.Typer(
    help="Look at the dead letters that a run has kept (--dead), mend and replay them.", no_args_is_help=True
)

FOLDER = Annotated[Path, typer.Argument(help="the folder that the run was given with --dead, or 'refused' of a sink")]
STEP = Annotated[str | None, typer.Option(help="only those that broke this step")]


@app.command("list")
def list_(folder: FOLDER, step: STEP = None, as_json: JSON = False) -> None:
    """List the dead letters of a folder that were not replayed yet, oldest first."""
    letters = _select(folder, [], step)
    if as_json:
        print_json([letter.to_json() for letter in letters])
        return
    table = Table(header_style="bold")
    for column in ("id", "at", "step", "error", "record"):
        table.add_column(column)
    for letter in letters:
        table.add_row(str(letter.id), _moment(letter.at_ns), letter.step, _short(letter.error), _short(letter.record))
    console.print(table)


@app.command()
def show(
    folder: FOLDER, id: Annotated[int, typer.Argument(help="its number in the list")], as_json: JSON = False
) -> None:
    """Show one dead letter: the step, the error, the whole record, and when it was."""
    (letter,) = _select(folder, [id], None)
    if as_json:
        print_json(letter.to_json())
        return
    for what, value in (
        ("step", letter.step),
        ("error", letter.error),
        ("at", _moment(letter.at_ns)),
        ("created", _moment(letter.created_ns)),
        ("record", letter.record),
    ):
        console.print(f"{what:8}{value}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def replay(
    flow: FLOW,
    folder: FOLDER,
    ids: Annotated[list[int] | None, typer.Argument(help="numbers of dead letters [default: all]")] = None,
    step: STEP = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE: change a field of each record first; VALUE is JSON or text"),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Give dead letters to the steps that they broke; those that break nothing now are released. Exits with 1 if any stay.

    The results go to the flow's sinks, behind what they hold. Steps that keep state begin without any. Letters are replayed
    and released by parts of 2,000: if this is killed, the next replay repeats at most one part; or all of it, where a step
    that they reach keeps state, as a window does.
    """
    from headwater.engine.dead import replay as replay_letters

    letters = _select(folder, ids or [], step)
    with progress(f"replaying {len(letters):,} dead letters"):
        result = replay_letters(find_flow(flow), folder, letters, dict(_change(text) for text in set_ or []))
    if as_json:
        failures = {str(number): why for number, why in result.kept.items()}
        print_json(
            {
                "released": result.released,
                "kept": failures,
                "report": None if result.report is None else result.report.to_json(),
            }
        )
    else:
        console.print(f"released {len(result.released):,} of {len(letters):,} dead letters")
        for number, why in result.kept.items():
            err.print(f"{number} stays: {why}", markup=False)
    if result.kept:
        raise typer.Exit(1)


def _select(folder: Path, ids: list[int], step: str | None) -> list[Letter]:
    every = list(DeadLetterFolder(folder).letters())
    letters = [each for each in every if step is None or each.step == step]
    if every and not letters:
        steps = {each.step for each in every}
        message = f"no dead letter in {str(folder)!r} is of step {step!r}; they are of {listed(steps)}"
        err.print(message + suggestion(str(step), steps), markup=False, highlight=False, soft_wrap=True)
    if not ids:
        return letters
    by_id = {letter.id: letter for letter in letters}
    lacking = [number for number in ids if number not in by_id]
    if lacking:
        raise FlowError(f"there is no dead letter {lacking[0]} in {str(folder)!r}; it may have been replayed already")
    return [by_id[number] for number in dict.fromkeys(ids)]


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FlowError(f"--set takes FIELD=VALUE, such as height=12.5; got {text!r}")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _moment(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(" ", "milliseconds")


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
