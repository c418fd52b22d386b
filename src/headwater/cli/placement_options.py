"""The options that every command about a placement takes, written once: what is asked, of what, and for how long."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headwater.cli.question import MODEL, Question, pairs, question_of
from headwater.errors import PlacementError
from headwater.net.net import Net
from headwater.place import Budget, Constraints, Objective, Problem

FLOWS_AND_NET = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FLOW... NET", help="flows (module:name, path/to/flow.py[:name], riot:etl), and last the net file"
    ),
]
PROBLEM = Annotated[Path | None, typer.Option(help="a file of CEP dataflows instead of FLOW and NET")]
CASE = Annotated[str | None, typer.Option(help="which dataflow of the file [default: its first]")]
RESOURCES = Annotated[str, typer.Option(help="for --problem: liberal or conservative")]


@dataclass(frozen=True)
class Ask:
    """What is asked; a command takes these as options of its own (`with_ask`)."""

    rate: Annotated[list[str] | None, typer.Option(help="records/s of every source, or NAME=RATE")] = None
    profile: Annotated[
        list[Path] | None,
        typer.Option(help="profile file of 'headwater profile', one per flow; measured now if left out"),
    ] = None
    measured_on: Annotated[
        str | None, typer.Option(help="class of the net, or instructions/s, that the profile was measured on")
    ] = None
    model: Annotated[
        str,
        typer.Option(help="how time is reckoned: as the engine does, or the papers' queue, shared or round-robin"),
    ] = MODEL
    every: Annotated[
        str | None,
        typer.Option(
            help="how often sites make checkpoints, as of 'headwater deploy': records wait for one where they cross from "
            "site to site [default: no wait is counted]"
        ),
    ] = None
    pin: Annotated[
        list[str] | None,
        typer.Option(help="STEP=DEVICE or STEP=SITE: where a step must run; sources need it, or a sensor in the net"),
    ] = None
    keep: Annotated[list[str] | None, typer.Option(help="STEP=TRUST: its output must not leave this trust zone")] = None
    close: Annotated[list[str] | None, typer.Option(help="DEVICE that must not be used")] = None
    time_s: Annotated[float, typer.Option("--time", help="seconds to search, for each question")] = 10.0
    seed: Annotated[int, typer.Option(help="the same seed gives the same answer")] = 0

    def constraints(self) -> Constraints:
        """What must hold of the answer."""
        return Constraints(
            pins=pairs("--pin", self.pin), keep=pairs("--keep", self.keep), closed=frozenset(self.close or ())
        )

    def question(self, flows: list[str], check: Callable[[Question], object] | None = None) -> Question:
        """The flows, found, with what they cost, measured now where no profile says it, after a `check` of all else."""
        return question_of(flows, self.rate, self.profile, self.measured_on, self.model, self.every, check)

    def problem(self, flows: list[str], net: Net, *, places: bool = True) -> Problem:
        """The problem of placing the flows on a net; what is wrong with it is told before anything is measured."""

        def on(question: Question) -> Problem:
            return question.on(net, constraints=self.constraints(), places=places)

        return on(self.question(flows, on))

    def budget(self, objective: str | None = None, gap: float = 0.0) -> Budget:
        """How to search; checked before anything is measured."""
        if not 0 <= self.time_s < float("inf"):
            raise PlacementError(f"--time must be 0 s or more; got {self.time_s}")
        if not 0 <= gap <= 1:
            raise PlacementError(f"--gap must be from 0 to 1; got {gap}")
        goal = Objective.parse(objective) if objective else None
        return Budget(time_s=self.time_s, gap=gap, seed=self.seed, objective=goal)


def with_ask(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that has a parameter `ask: Ask` take its fields as options, after those of its own."""
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(Ask, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(Ask)
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in own.parameters.items() if name != "ask"]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        ask = Ask(**{p.name: values.pop(p.name) for p in options})
        command(**values, ask=ask)

    both = [*parameters, *options]
    wrapper.__signature__ = own.replace(parameters=both)  # type: ignore[attr-defined]  # what typer reads
    wrapper.__annotations__ = {p.name: p.annotation for p in both}
    return wrapper
