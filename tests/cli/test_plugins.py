"""Where the benchmark is not installed, everything else works, and what is missing is said."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from headwater.cli import add_commands, app, plugins
from headwater.cli.locate import find_flow
from headwater.errors import FlowError, RunError

#: a Python in which headwater-bench cannot be found, neither its modules nor what it adds
WITHOUT = """
import importlib.metadata, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "headwater_bench":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
known = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **of: [e for e in known(**of) if not e.value.startswith("headwater_bench")]
from headwater.cli import main
main()
"""


def alone(*arguments):
    return subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["bench", "overhead"], ["demo"], ["run", "riot:etl"], ["show", "riot:etl"]])
def test_without_the_benchmark_its_commands_and_flows_say_what_to_install(arguments):
    done = alone(*arguments)
    assert done.returncode == 2
    assert "pip install headwater-bench" in done.stderr


def test_without_the_benchmark_a_flow_of_ones_own_runs(tmp_path):
    (tmp_path / "own.py").write_text(
        "from headwater import Flow, io\n"
        "flow = Flow('own')\n"
        "flow.read('read', io.Items([{'x': 1}, {'x': 2}])).write('write', io.Csv('out.csv'))\n"
    )
    code = [sys.executable, "-c", WITHOUT, "run", "own.py"]
    done = subprocess.run(code, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().split() == ["x", "1", "2"]


def test_a_bundle_tells_its_flows_when_a_name_is_wrong():
    with pytest.raises(FlowError, match=r"there is no bundled flow 'riot:elt'.*riot:etl"):
        find_flow("riot:elt")


def test_a_package_adds_commands_and_flows_by_entry_points(monkeypatch):
    assert plugins.bundles() == ["riot"]
    add_commands()
    assert {"bench", "demo"} <= set(plugins.commands())
    assert CliRunner().invoke(app, ["bench", "--help"]).exit_code == 0


def test_without_a_reader_of_problems_the_option_says_what_to_install(monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda **of: [])
    with pytest.raises(RunError, match="pip install headwater-bench"):
        plugins.problem_reader()
