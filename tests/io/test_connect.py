import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"


def test_the_page_on_sources_and_sinks_does_what_it_says(tmp_path):
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "page.py").write_text("".join(code for kind, code in blocks if kind == "python"))
    ran = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "".join(text for kind, text in blocks if kind == "text")
