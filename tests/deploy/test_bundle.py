"""Which files of a flow travel, and by which paths."""

import sys

import pytest

from headwater.cli.locate import find_flow
from headwater.deploy.bundle import sources_of

FLOW = "import near_levels\nfrom headwater import Flow\n\nflow = Flow('tanks')\n"


@pytest.mark.parametrize("below", [False, True])
def test_a_flow_travels_with_its_neighbours_by_paths_within_its_folder(tmp_path, monkeypatch, below):
    (tmp_path / "deep").mkdir()
    (tmp_path / "far_tanks.py").write_text(FLOW)
    (tmp_path / "near_levels.py").write_text("low = 15\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path / "deep" if below else tmp_path)
    name = "../far_tanks.py" if below else "far_tanks.py"
    try:
        find_flow(name)
        assert sorted(sources_of(tmp_path / "far_tanks.py")) == ["far_tanks.py", "near_levels.py"]
    finally:
        for each in ("far_tanks", "near_levels"):
            sys.modules.pop(each, None)
