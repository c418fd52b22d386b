"""The command line as a test types it."""

import sys

import pytest

from headwater import cli


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    cli.add_commands()

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["headwater", *map(str, words)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
