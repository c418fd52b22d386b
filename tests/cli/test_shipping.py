"""What is handed to a cluster of a flow in a file: its modules, each under the name by which it is imported."""

import sys
from types import ModuleType

import pytest

from headwater.cli.shipping import shipment

FLOW = b"import tank_levels\nflow = None\n"


def imported(monkeypatch, file, text=b"LEVELS = 3\n"):
    """Have a module that is imported from a file."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    name = file.parent.name if file.stem == "__init__" else file.stem
    module = ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("beside", ["tank_levels.py", "tank_levels/__init__.py"])
def test_a_flow_whose_name_would_be_that_of_a_module_beside_it_gets_another(tmp_path, monkeypatch, beside):
    (tmp_path / "tank-levels.py").write_bytes(FLOW)
    imported(monkeypatch, tmp_path / beside)
    imported(monkeypatch, tmp_path / "tank_levels_flow.py")
    reference, files = shipment(f"{tmp_path / 'tank-levels.py'}:flow", "flow")
    assert reference == "tank_levels_flow_flow:flow"
    assert files == {
        "tank_levels_flow_flow.py": FLOW,
        beside: b"LEVELS = 3\n",
        "tank_levels_flow.py": b"LEVELS = 3\n",
    }


def test_a_flow_keeps_its_name_otherwise(tmp_path, monkeypatch):
    (tmp_path / "tanks.py").write_bytes(FLOW)
    imported(monkeypatch, tmp_path / "tanks.py", FLOW)
    imported(monkeypatch, tmp_path / "tank_levels.py")
    reference, files = shipment(f"{tmp_path / 'tanks.py'}:flow", "flow")
    assert reference == "tanks:flow"
    assert files == {"tanks.py": FLOW, "tank_levels.py": b"LEVELS = 3\n"}
