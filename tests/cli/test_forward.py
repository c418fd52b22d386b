"""`--forward`, `--rate` and `--input` as they are typed: what waits, and what cannot be meant."""

import http.server
import json
import threading

import pytest

from headwater.cli.forward import parse
from headwater.errors import FlowError

FLOW = """
from headwater import Flow, io
flow = Flow("f")
numbers = flow.read("in", io.JsonLines("in.jsonl", {"n": int}))
numbers.write("up", io.Http("http://127.0.0.1:%d/", patience="100 ms"))
numbers.write("here", io.JsonLines("here.jsonl"))
"""


@pytest.fixture
def server():
    taken = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.extend(json.loads(line)["n"] for line in body.splitlines())
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    yield server, taken
    server.server_close()


def write(tmp_path, port, count):
    (tmp_path / "f.py").write_text(FLOW % port)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))


def test_records_for_network_sinks_wait_in_the_folder_and_come_with_a_later_run(typed, tmp_path, server):
    write(tmp_path, 9, 10)  # nobody is at port 9
    code, out, _ = typed("run", "f.py", "--forward", "up,bytes=1 MB,age=1 hour,rate=1 MB/s,linger=200 ms", "--json")
    assert code == 0
    assert json.loads(out)["sinks"]["up"]["waiting"] == 10
    assert (tmp_path / "up" / "up").is_dir()
    assert len((tmp_path / "here.jsonl").read_text().splitlines()) == 10
    serving, taken = server
    write(tmp_path, serving.server_address[1], 0)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    code, out, _ = typed("run", "f.py", "--forward", "up", "--json")
    serving.shutdown()
    assert json.loads(out)["sinks"]["up"]["forwarded"] == 10
    assert taken == list(range(10))


@pytest.mark.parametrize("kept", [("--forward", "up,linger=200 ms"), ("--checkpoint", "ck")])
def test_what_waits_at_the_end_is_told_in_words_whatever_else_is_quiet(typed, tmp_path, kept):
    write(tmp_path, 9, 10)
    code, out, _ = typed("--quiet", "run", "f.py", *kept)
    assert code == 0
    assert "10 records for up wait on disk for the next run" in " ".join(out.split())
    assert "for here wait" not in out


def test_with_a_checkpoint_a_sink_that_keeps_its_parts_beside_it_is_named(typed, tmp_path):
    write(tmp_path, 9, 3)
    code, _, err = typed("run", "f.py", "--forward", "up", "--checkpoint", "ck", "--json")
    assert code == 0
    assert "--forward means nothing to 'up'" in err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("bytes=1 GB", "begins with a folder"),
        ("up,bites=1 GB", "did you mean 'bytes'"),
        ("up,bytes=much", "a number and a unit"),
        ("up,full=burn", "full is one of"),
        ("up,full=drop lowest", "goes with priority="),
        ("up,age=old", "old"),
    ],
)
def test_settings_that_cannot_be_meant_are_told(typed, tmp_path, given, told):
    write(tmp_path, 9, 1)
    code, _, err = typed("run", "f.py", "--forward", given)
    assert code == 2
    assert told in err.replace("\n", " ")


def test_settings_are_read():
    folder, settings = parse("a/b, full=drop oldest,order=newest")
    assert str(folder) == "a/b"
    assert settings == {"full": "drop oldest", "order": "newest"}
    with pytest.raises(FlowError):
        parse("")


def test_a_flow_without_a_network_has_nothing_to_forward(typed, tmp_path):
    (tmp_path / "f.py").write_text(
        "from headwater import Flow, io\nflow = Flow('f')\nflow.read('in', io.Items([{'n': 1}])).write('out', io.Discard())"
    )
    code, _, err = typed("run", "f.py", "--forward", "up")
    assert (code, "has none" in err.replace("\n", " ")) == (2, True)


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf"])
def test_a_rate_is_above_zero(typed, tmp_path, rate):
    write(tmp_path, 9, 1)
    code, _, err = typed("run", "f.py", "--rate", rate)
    assert (code, "a number above 0" in err) == (2, True)


def test_an_input_for_a_source_that_is_not_there_is_told(typed, tmp_path):
    write(tmp_path, 9, 1)
    code, _, err = typed("run", "f.py", "--input", "inn=in.jsonl")
    assert code == 2
    assert "has no source 'inn'; its sources are 'in'; did you mean 'in'" in " ".join(err.split())


def test_dead_letters_need_a_folder(typed, tmp_path):
    write(tmp_path, 9, 1)
    code, _, err = typed("run", "f.py", "--dead", "in.jsonl")
    assert (code, "--dead names a folder" in err) == (2, True)
