"""The command line: thin. Each command is a file of this folder that parses, calls the public API and shows the answer."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import typer

from headwater import __version__
from headwater.cli import plugins
from headwater.cli.keeping import main_begins, main_ends
from headwater.cli.lazy import LOOK, Commands, ListedCommand, lacking
from headwater.errors import HeadwaterError, exit_code_of

__all__ = ["add_commands", "app", "main"]

app = typer.Typer(
    name="headwater",
    help="Stream processing for the space between sensors and cloud.",
    cls=Commands,
    no_args_is_help=True,
    **LOOK,
)

#: commands in the order that help shows them, and the first sentence of each
_COMMANDS = {
    "run": (
        "Run a flow to its end; Ctrl-C stops reading and drains, a second one stops at once, a third does not wait for it."
    ),
    "show": "Draw a flow: as a text tree, as Mermaid or as SVG; or describe it as JSON.",
    "profile": (
        "Measure each step: time per record, overhead per activation, selectivity, bytes, state. Sinks are not written to."
    ),
    "dead": "Look at the dead letters that a run has kept (--dead), mend and replay them.",
    "query": "Run one query over files: patterns, sequences, windows and joins in the language of Siddhi.",
    "plan": "Choose where each step runs, and account for it. Exits with 1 if nothing fits.",
    "size": "How much is enough: the fewest devices, how far rates can grow, and what one measure costs in another.",
    "simulate": "Play a placement in virtual time and report it like a run; the same seed gives the same trace.",
    "net": "Make and show nets: where steps could run.",
    "serve": "Run every flow of a folder, look after them, and answer for them over HTTP.",
    "site": "Run the parts of flows that a coordinator hands to this machine, until stopped.",
    "up": "Start all sites of a net on this machine, as processes, for trials and tests; until stopped.",
    "link": "Cut links between the sites that `headwater up` runs, and mend them: does the flow go on?",
    "deploy": (
        "Run a flow at the sites of a plan: hand each its part, start them, and look after them until the flow ends."
    ),
    "move": "Move steps of the flow that is deployed to another site, with their state; nothing is lost or comes twice.",
    "drain": "Move every step of a site elsewhere that can be; sinks stay, and most sources. See `headwater move`.",
    "stop": (
        "Stop the flow that is deployed at sites, each part with a checkpoint; `headwater deploy` goes on from there."
    ),
    "status": "Show the flows of servers on this machine, and what is promised here: rates, cores, windows kept and broken.",
    "supervisor": "Keep the ledger of promised rates for this machine, until stopped; root does, in a service.",
    "checkpoint": "List the checkpoints of the engine in a folder: how far each source was read, and what each step keeps.",
    "takeover": "Turn a checkpoint of the engine into one that Spark goes on from, or the other way round.",
    "spark": "Hand flows to a Spark cluster.",
    "doctor": "Say what is installed and works, and how to mend what does not.",
}


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="show the version"),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="no warnings on standard error"),
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(message)s"))
    logging.basicConfig(level=logging.ERROR if quiet else logging.WARNING, handlers=[handler])


class _Plain(logging.Formatter):
    """What is logged as it is: much of it comes from elsewhere, and a terminal should obey none of it."""

    def format(self, record: logging.LogRecord) -> str:
        from headwater.cli.plain import shown

        return shown(super().format(record))


@cache
def add_commands() -> None:
    """List every command that is installed; once."""
    for name, about in _COMMANDS.items():
        _list(name, about, partial(importlib.import_module, f"headwater.cli.{name}"))
    extra_commands = plugins.commands()
    for name, point in extra_commands.items():
        about = (
            plugins.BENCH_COMMANDS.get(name)
            or f"Added by the package {point.dist.name if point.dist else point.module}."
        )
        _list(name, about, point.load)
    for name in plugins.BENCH_COMMANDS:
        if name not in extra_commands:
            Commands.registry[name] = lacking(name, plugins.BENCH, f"pip install {plugins.BENCH}")


def _list(name: str, about: str, load: Callable[[], Any]) -> None:
    Commands.registry[name] = ListedCommand(name, about, load)


def main() -> None:
    """Run the command line; errors that Headwater raises on purpose become one line and an exit code."""
    main_begins(sys.argv[1:])
    add_commands()
    try:
        _run()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what it still holds, at the very end
        typer.echo("error: cannot write standard output: the disk is full", err=True)
        raise SystemExit(1) from None


def _run() -> None:
    try:
        app()
    except SystemExit as end:
        from headwater.cli.unread import leave_unread, was_unread

        if was_unread(end):
            leave_unread()
        _flush_output()
        raise
    except HeadwaterError as error:
        from headwater.cli.plain import shown
        from headwater.cli.screen import print_error
        from headwater.cli.unread import is_unread, leave_unread

        if is_unread(error):
            leave_unread()
        typer.echo(f"error: {shown(str(error))}", err=True)
        try:
            print_error(error)
        except BrokenPipeError:
            leave_unread()
        _flush_output()
        raise SystemExit(exit_code_of(error)) from None
    finally:
        main_ends()


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        from headwater.cli.unread import leave_unread

        leave_unread()
