"""The console of commands: shows texts as they are, whatever is in them."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from headwater.cli.unread import leave_unread

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  #: what a terminal does something about, but for lines and tabs


class PlainConsole(Console):
    """A console to which no text is markup, nor anything that a terminal obeys: records and names come from elsewhere.

    It ends the command where nobody reads any more what it shows.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as it is shown."""
        return super().render_str(shown(text), **options)

    def on_broken_pipe(self) -> None:
        """Leave: Rich has come to know of it."""
        self.quiet = True
        leave_unread()


def shown(text: str) -> str:
    r"""Return a text as it may be printed on a terminal, whoever wrote it.

    >>> shown("bad\n\x1b[31mred")
    'bad\n\\x1b[31mred'
    """
    return _OBEYED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
