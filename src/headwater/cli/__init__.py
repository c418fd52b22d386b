"""The command line: thin. Each command is a file of this folder that parses, calls the public API and shows the answer."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from functools import cache

import typer

from headwater import __version__
from headwater.errors import FlowError, HeadwaterError, NetError, PlacementError, QueryError, RunError

app = typer.Typer(
    name="headwater",
    help="Stream processing for the space between sensors and cloud.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

#: commands in the order that help shows them
_COMMANDS = ("run", "show", "profile", "query", "plan", "size", "simulate", "net", "bench", "demo", "doctor")


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
        if importlib.util.find_spec(f"headwater.cli.{name}") is None:
            continue
        try:
            module = importlib.import_module(f"headwater.cli.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("headwater"):
                raise
            app.command(name, context_settings=_ANYTHING)(_lacking(name, error.name))
            continue
        if isinstance(getattr(module, "app", None), typer.Typer):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))


_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def _lacking(command: str, package: str) -> Callable[[], None]:
    """Return a command for one whose extra is not installed: the others work without it."""

    def say() -> None:
        raise RunError(f"headwater {command} needs the package {package}: pip install 'headwater[all]'")

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
