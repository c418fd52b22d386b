"""Help imports no command, and says of each what it says of itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater.cli import add_commands
from headwater.cli.lazy import Commands

add_commands()


def test_help_imports_neither_numbers_nor_columns_nor_any_command():
    code = (
        "import sys\n"
        "from headwater.cli import main\n"
        "sys.argv[1:] = ['--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = ('numpy', 'msgspec', 'numba', 'pyarrow', 'headwater.flow', 'headwater.cli.run', 'headwater_bench')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in Commands.registry)


@pytest.mark.parametrize("name", list(Commands.registry))
def test_what_help_says_of_a_command_is_what_the_command_says(name):
    listed = Commands.registry[name]
    paragraph = listed.load_command().help.split("\n\n")[0].replace("\n", " ")
    assert paragraph == listed.about


def test_a_command_that_does_not_exist_is_answered_with_one_that_does():
    run = [sys.executable, "-c", "from headwater.cli import main; main()", "rnu"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run" in done.stderr.replace("rnu", "")
