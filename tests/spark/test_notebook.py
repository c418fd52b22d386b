"""The notebook among the examples does what it says, cell after cell."""

import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark" / "patterns.ipynb"


def test_the_notebook_shows_matches_of_a_stream_while_it_runs(spark, capsys):
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    told = capsys.readouterr().out
    assert told.count(" fell from 86 to 25") >= 3
    assert "dead_letters" in told
    assert not names["query"].isActive
