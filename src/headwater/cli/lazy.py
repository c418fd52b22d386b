"""Commands that are imported when they are called: help lists them all, and imports none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headwater.errors import RunError

#: what a command line that cannot be read raises: Click's, which Typer has in its own packages or beside it
UsageError: type[Any] = typer.BadParameter.__mro__[1]

#: how all commands are shown, those of other packages too
LOOK: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
}


@dataclass(frozen=True)
class ListedCommand:
    """A command as help lists it; `load` returns a function, a Typer application, or a module with one of its name."""

    name: str
    about: str
    load: Callable[[], Any]

    def stub(self) -> TyperCommand:
        """Return what stands for the command in a list."""
        return TyperCommand(self.name, help=self.about)

    def load_command(self) -> Any:
        """Import the command; one whose package is not installed says so when it is called."""
        try:
            target = self.load()
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("headwater"):
                raise
            return lacking(self.name, error.name, "pip install 'headwater[all]'").load_command()
        if isinstance(target, ModuleType):
            target = getattr(target, "app", None) or getattr(target, self.name)
        wrapper = typer.Typer(**LOOK)
        if isinstance(target, typer.Typer):
            wrapper.add_typer(target, name=self.name)
        else:
            wrapper.callback()(lambda: None)  # so that it is one of several, and keeps its name
            wrapper.command(self.name, context_settings=getattr(target, "context_settings", None))(target)
        group = typer.main.get_group(wrapper)
        return group.commands[self.name]


def lacking(command: str, package: str, remedy: str) -> ListedCommand:
    """Return a command for one whose package is not installed: the others work without it."""

    def say() -> None:
        raise RunError(f"headwater {command} needs the package {package}: {remedy}")

    say.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}  # type: ignore[attr-defined]
    return ListedCommand(command, f"Not installed: needs the package {package}.", lambda: say)


class Commands(TyperGroup):
    """The commands of one command line, in the order in which they were listed."""

    registry: dict[str, ListedCommand] = {}  # noqa: RUF012  # Click makes the group itself, from a class

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: command.stub() for name, command in self.registry.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, imported by now."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, self.registry[name].load_command() if name in self.registry else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is called; what its options refuse is an answer of `--json`, as any other error is."""
        wants_json = "--json" in (*ctx._protected_args, *ctx.args)
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if wants_json:
                from headwater.cli.screen import print_json

                print_json({"error": error.format_message()})
            raise
        except BrokenPipeError as error:
            from headwater.cli.unread import is_unread, leave_unread

            if is_unread(error):
                leave_unread()
            raise
