"""The command line as a user types it, in this process: most commands are done sooner than a process has started."""

import sys
from unittest.mock import patch

from headwater import cli


def exit_code(*words):
    """Run a command, which prints to this process's output; return its exit code."""
    cli.add_commands()
    with patch.object(sys, "argv", ["headwater", *map(str, words)]):
        try:
            cli.main()
        except SystemExit as stop:
            return stop.code or 0
    return 0
