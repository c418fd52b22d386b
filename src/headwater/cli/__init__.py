"""The command line: thin. Each command is a file of this folder that parses, calls the public API and shows the answer."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import typer

from headwater import __version__
from headwater.cli import plugins
from headwater.errors import FlowError, HeadwaterError, NetError, PlacementError, QueryError, RunError

__all__ = ["add_commands", "app", "main"]

app = typer.Typer(
    name="headwater",
    help="Stream processing for the space between sensors and cloud.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

#: commands in the order that help shows them
_COMMANDS = ("run", "show", "profile", "query", "plan", "size", "simulate", "net", "doctor")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="show the version"),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="no warnings on standard error"),
) -> None:
    logging.basicConfig(level=logging.ERROR if quiet else logging.WARNING, format="%(message)s", stream=sys.stderr)


@cache
def add_commands() -> None:
    """Add every command that is installed; once."""
    for name in _COMMANDS:
        _add(name, lambda name=name: importlib.import_module(f"headwater.cli.{name}"))  # type: ignore[misc]
    added = plugins.commands()
    for name, point in added.items():
        _add(name, point.load)
    for name in plugins.BENCH_COMMANDS:
        if name not in added:
            app.command(name, context_settings=_ANYTHING)(_lacking(name, plugins.BENCH, f"pip install {plugins.BENCH}"))


def _add(name: str, load: Callable[[], Any]) -> None:
    """Add a command: a function, a Typer application, or a module that has one of its name."""
    try:
        found = load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headwater"):
            raise
        app.command(name, context_settings=_ANYTHING)(_lacking(name, error.name, "pip install 'headwater[all]'"))
        return
    if isinstance(found, ModuleType):
        found = getattr(found, "app", None) or getattr(found, name)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)


_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def _lacking(command: str, package: str, remedy: str) -> Callable[[], None]:
    """Return a command for one whose package is not installed: the others work without it."""

    def say() -> None:
        raise RunError(f"headwater {command} needs the package {package}: {remedy}")

    say.__doc__ = f"Not installed: needs the package {package}."
    return say


def main() -> None:
    """Run the command line; errors that Headwater raises on purpose become one line and an exit code."""
    add_commands()
    try:
        app()
    except HeadwaterError as error:
        typer.echo(f"error: {error}", err=True)
        # described wrongly is bad usage (2); started and then failed is an answer, if a sad one (1)
        usage = isinstance(error, FlowError | QueryError | NetError | PlacementError) or (
            isinstance(error, RunError) and error.step is None and error.report is None
        )
        raise SystemExit(2 if usage else 1) from None
