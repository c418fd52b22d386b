"""The examples of placement print what stands beside them, and draw."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {"farm": "farm.py", "city-lampposts": "city.py", "plant": "plant.py"}


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+ s;", "in … s;", text)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_what_stands_beside_it_and_draws_a_picture(example, tmp_path, capsys):
    folder = ROOT / "examples" / example
    runpy.run_path(str(folder / EXAMPLES[example]))["main"](str(tmp_path / "plan.png"))
    assert without_times(capsys.readouterr().out) == (folder / "expected.txt").read_text()
    assert (tmp_path / "plan.png").stat().st_size > 5_000
