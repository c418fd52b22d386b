"""What a command is to write is refused before it measures anything, if it cannot be written."""

import pytest

FLOW = """
from headwater import Flow, io
flow = Flow("tanks")
flow.read("levels", io.Items([{"height": 1.0}])).write("out", io.Discard())
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "tanks.py", "--output", "nosuch/x.svg"), "--output nosuch/x.svg: there is no folder 'nosuch'"),
        (("show", "tanks.py", "--form", "svg", "--output", "."), "is it a variable that is not set?"),
        (("show", "tanks.py", "--output", "folder"), "--output names a file to write; 'folder' is a folder"),
        (("profile", "tanks.py", "--output", "nosuch/p.json"), "there is no folder 'nosuch'"),
        (("profile", "--device", "--output", "nosuch/here.toml"), "there is no folder 'nosuch'"),
        (("plan", "tanks.py", "net.toml", "--output", "nosuch/p.json"), "there is no folder 'nosuch'"),
        (("plan", "tanks.py", "net.toml", "--picture", "nosuch/p.png"), "there is no folder 'nosuch'"),
        (("plan", "tanks.py", "net.toml", "--picture", "p.jpeg"), "ends in '.png', '.svg'; got 'p.jpeg'"),
        (("size", "tanks.py", "net.toml", "--front", "critical,money", "--picture", "folder"), "'folder' is a folder"),
        (("net", "make", "nosuch/net.toml"), "OUTPUT nosuch/net.toml: there is no folder 'nosuch'"),
        (("bench", "overhead", "--quick", "--output", "tanks.py"), "--output names a folder; 'tanks.py' is a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_file_that_cannot_be_written_is_refused_in_one_line(typed, tmp_path, words, said):
    (tmp_path / "tanks.py").write_text(FLOW)
    (tmp_path / "folder").mkdir()
    code, _, heard = typed(*words)
    assert (code, said in heard) == (2, True), heard
    assert len(heard.splitlines()) == 1
    assert (tmp_path / "tanks.py").read_text() == FLOW
    assert not list((tmp_path / "folder").iterdir())
