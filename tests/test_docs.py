"""The pages under docs/ and the README do what they say: their code runs, and prints what stands below it."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from headwater_bench.experiments.broker import broker

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: a page whose code has a test of its own, which reads back what the page publishes
OWN = {"queries.md": "tests/cep/test_docs.py"}
#: a page of which Spark's workers read a file beside it: they look where Spark was started
ALONE = {"README.md"}
NEEDS_SPARK = re.compile(r"^from headwater(\.spark| import .*\bspark|_bench\.mllib)\b", re.M)
#: what has an expected.txt beside it is run by tests/place/test_examples.py
EXAMPLES = sorted(
    path
    for path in set((ROOT / "examples").rglob("*.py")) - {ROOT / "examples" / "tour" / "tanks.py"}
    if not (path.parent / "expected.txt").exists()
)


def ran(script, folder, *, where):
    done = subprocess.run(
        [sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{where}:\n{done.stderr}"
    return done.stdout


def with_code():
    """Return each page that has code of its own to run, and mark those that need Spark."""
    for page in PAGES:
        blocks = re.findall(r"```(python|text)\n(.*?)```", page.read_text(), re.DOTALL)
        code = "\n".join(text for kind, text in blocks if kind == "python")
        if code and page.name not in OWN:
            told = "".join(text for kind, text in blocks if kind == "text")
            marks = [pytest.mark.spark] if NEEDS_SPARK.search(code) else []
            name = f"{page.name}-on_spark" if marks and page.name not in ALONE else page.name
            yield pytest.param(page, code, told, id=name, marks=marks)


@pytest.mark.parametrize(("page", "code", "told"), list(with_code()))
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, code, told, tmp_path, request):
    with broker() if "mqtt://broker" in code else nullcontext("") as url:  # a page's broker is a real one here
        if page.name == "README.md":  # it shows a flow of the examples, which has readings beside it
            shutil.copy(ROOT / "examples" / "tour" / "levels.jsonl", tmp_path)
        (tmp_path / "page.py").write_text(code.replace("mqtt://broker", url))
        if request.node.get_closest_marker("spark") and page.name not in ALONE:
            printed = request.getfixturevalue("ran_beside_spark")("page.py")
        else:
            printed = ran("page.py", tmp_path, where=page.name)
    if told:
        assert printed == told


@pytest.fixture
def ran_beside_spark(spark, tmp_path, monkeypatch, capsys):
    """Run a script in this process, whose Spark is warm; return what it prints."""

    def run(script):
        monkeypatch.chdir(tmp_path)
        names = {"__name__": "page"}  # no module: its functions travel to Spark's workers whole
        exec(compile(Path(script).read_text(), script, "exec"), names)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_commands_of_the_readme_plan_and_rehearse_its_flow(tmp_path):
    shutil.copytree(ROOT / "examples" / "tour", tmp_path / "tour")
    lines = re.findall(r"^headwater ((?:plan tanks|simulate plan)[^#\n]*)", (ROOT / "README.md").read_text(), re.M)
    assert len(lines) == 2
    for line in lines:
        more = ["--profile", "profile.json", "--measured-on", "gateway"] if line.startswith("plan") else []
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *shlex.split(line), *more, "--json"],
            cwd=tmp_path / "tour", capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
    assert json.loads(done.stdout)["records_out"]["archive"] > 0
    assert (tmp_path / "tour" / "plan.png").stat().st_size


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_prints_what_stands_beside_it(example, tmp_path):
    printed = ran(example, tmp_path, where=example.name)
    expected = example.with_suffix(".out")
    if expected.exists():
        assert printed == expected.read_text()
