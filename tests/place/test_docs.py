"""The page on placement and its examples do what they say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "place-a-flow.md"
EXAMPLES = {"farm": "farm.py", "city-lampposts": "city.py", "plant": "plant.py"}


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+ s;", "in … s;", text)


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) > 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "tanks: optimal" in capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_what_stands_beside_it_and_draws_a_picture(example, tmp_path, capsys):
    folder = ROOT / "examples" / example
    runpy.run_path(str(folder / EXAMPLES[example]))["main"](str(tmp_path / "plan.png"))
    assert without_times(capsys.readouterr().out) == (folder / "expected.txt").read_text()
    assert (tmp_path / "plan.png").stat().st_size > 5_000
