"""The command line as a user types it."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from headwater.cli import main
from headwater.cli.site import _folder, _name
from headwater.deploy.token import make_token
from headwater.errors import RunError

FLOW = """
from headwater import Flow, col, io
flow = Flow("tanks")
levels = flow.read("levels", io.Items([{"tank": "a", "height": float(h)} for h in range(200)]))
levels.filter("low", col.height < 150).write("out", io.Discard())
"""


@pytest.fixture
def headwater(typed, tmp_path):
    """The command line, in a folder that holds a flow."""
    (tmp_path / "tanks.py").write_text(FLOW)
    return typed


@pytest.mark.parametrize("words", [("run", "tanks.py"), ("show", "tanks.py", "--json"), ("run", "none.py", "--json")])
def test_standard_output_on_a_full_disk_is_told_in_one_line(tmp_path, words):
    (tmp_path / "tanks.py").write_text(FLOW)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *words],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: cannot write standard output: the disk is full"
    assert "Traceback" not in done.stderr


def test_run_prints_one_json_document(headwater):
    code, out, _ = headwater("run", "tanks.py", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["records_in"] == 200
    assert document["records_out"] == {"out": 150}
    assert {"dead_letters", "shed", "left", "throughput", "latency_ms", "steps"} <= document.keys()
    assert set(document["latency_ms"]) == {"p50", "p95", "p99"}
    keys = {"name", "in", "out", "queue", "t_q_ms", "t_s_ms", "t_c_ms", "utilisation"}
    assert all(keys <= step.keys() for step in document["steps"])


@pytest.mark.parametrize("lanes", [(), ("--lanes", "2")])
def test_what_a_flow_prints_is_not_among_the_document(headwater, tmp_path, lanes):
    (tmp_path / "talks.py").write_text(
        "from headwater import Flow, io\nprint('imported')\nflow = Flow('talks')\n\n\n"
        "def shown(record):\n    print('record', record['n'])\n    return record\n\n\n"
        "flow.read('r', io.Items([{'n': 1}])).map('m', shown).write('w', io.Discard())\n"
    )
    code, out, err = headwater("run", "talks.py", "--json", *lanes)
    assert code == 0
    assert json.loads(out)["records_in"] == 1
    assert "imported" in err
    assert "record 1" in err
    assert "imported" in headwater("run", "talks.py", *lanes)[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "tanks.py", "--input", "levels.jsonl"), 2),
        (("run", "tanks.py", "--prometheus", "{port}"), 2),
        (("run", "lacking.py"), 2),
        (("show", "tanks.py:nix"), 2),
        (("net", "show", "nowhere.toml"), 2),
    ],
)
def test_a_command_that_breaks_off_prints_one_json_document_with_the_error(headwater, tmp_path, words, code):
    (tmp_path / "lacking.py").write_text(
        "from headwater import Flow, io\nflow = Flow('lacking')\n"
        "flow.read('levels', io.JsonLines('no.jsonl', {'height': float})).write('out', io.Discard())\n"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found, out, said = headwater(*(word.format(port=taken.getsockname()[1]) for word in words), "--json")
    assert found == code
    assert said.splitlines()[-1] == f"error: {json.loads(out)['error']}"


@pytest.mark.parametrize(
    "words",
    [("run", "tanks.py", "--workers", "x"), ("run",), ("run", "tanks.py", "--nix"), ("nix",), ("net", "show", "--nix")],
)
def test_what_options_refuse_is_one_json_document_too(headwater, words):
    code, out, said = headwater(*words, "--json")
    assert code == 2
    assert json.loads(out)["error"] in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize("flow", ["leaves.py", "leaves:flow"])
def test_a_flow_whose_file_ends_python_is_told_with_its_line(headwater, tmp_path, flow):
    (tmp_path / "leaves.py").write_text("import sys\n\nsys.exit(3)\n")
    code, out, said = headwater("run", flow, "--json")
    assert code == 2
    assert "leaves.py:3" in said
    assert json.loads(out)["error"].endswith("SystemExit: 3")


def test_a_flow_may_be_called_as_a_module_of_pythons_own(tmp_path):
    (tmp_path / "queue.py").write_text(FLOW)
    words = [sys.executable, "-P", "-m", "headwater", "run", "queue.py"]
    environ = {
        **os.environ,
        "HEADWATER_CACHE": str(tmp_path / "cache"),
    }  # where kernels are compiled, which needs queue
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_that_breaks_off_has_one_document_too(headwater, tmp_path):
    (tmp_path / "broken.py").write_text(
        FLOW.replace('.write("out", io.Discard())', '.map("no", lambda r: 1 / 0, on_error="stop")')
    )
    code, out, _ = headwater("run", "broken.py", "--json")
    assert code != 0
    assert "error" in json.loads(out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--queue-mb", "-3"), "--queue-mb is a whole number above 0; got -3"),
        (("--hang", "x"), "--hang: cannot read duration 'x'"),
        (("--for", "abc"), "--for: cannot read duration 'abc'"),
        (("--for", "50"), "such as '100 ms'; did you mean '50 s' or '50 ms'?"),
        (("--promise", "5/parsec"), "--promise: cannot read rate '5/parsec'"),
        (("--promise", "0/s"), "--promise is a rate above 0, such as 20000/s; got '0/s'"),
        (("--promise", "5/s", "--within", "0ms"), "--within is a latency above 0, such as 50ms; got '0ms'"),
        (("--input", "levels.jsonl"), "--input names 'levels.jsonl': there is no such file"),
    ],
)
def test_what_is_said_names_the_option_that_was_given(headwater, words, said):
    code, _, heard = headwater("run", "tanks.py", *words)
    assert (code, said in heard) == (2, True), heard


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        ('JsonLines("gone.jsonl", {"n": int})', "Discard()", "cannot read gone.jsonl: there is no such file"),
        ('Csv("gone.csv")', "Discard()", "cannot read gone.csv: there is no such file"),
        ('Parquet("gone.parquet")', "Discard()", "cannot read gone.parquet: there is no such file"),
        ('Sqlite("gone.db", "t")', "Discard()", "cannot read gone.db: there is no such file"),
        ('Folder("gone", schema={"n": int})', "Discard()", "cannot read gone: there is no such file"),
        ('Items([{"n": 1}])', 'Csv("gone/out.csv")', "cannot write gone/out.csv: its directory does not exist"),
        ('Items([{"n": 1}])', 'Csv(".")', "cannot write .: it is a directory"),
    ],
)
def test_a_path_of_nothing_ends_with_2_in_a_flow_as_it_does_in_an_option(headwater, tmp_path, source, sink, said):
    (tmp_path / "paths.py").write_text(
        f"from headwater import Flow, io\nflow = Flow('paths')\nflow.read('in', io.{source}).write('out', io.{sink})\n"
    )
    code, _, heard = headwater("run", "paths.py")
    assert (code, said in heard) == (2, True), heard


def test_a_flow_that_a_file_has_not_is_answered_with_those_that_it_has(headwater):
    code, _, said = headwater("run", "tanks.py:nix")
    assert (code, "tanks.py has no 'nix'; its flows are 'flow'" in said) == (2, True), said


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_run_reads_and_writes_other_files(headwater, tmp_path, on):
    (tmp_path / "in.jsonl").write_text('{"tank": "x", "height": 10}\n{"tank": "y", "height": 500}\n')
    code, _, _ = headwater("run", "tanks.py", "--on", on, "--input", "in.jsonl", "--output", "out")
    assert code == 0
    assert (tmp_path / "out" / "out.csv").read_text().splitlines() == ["tank,height", "x,10.0"]


def test_run_replays_at_a_rate_for_a_while(headwater):
    code, out, _ = headwater("run", "tanks.py", "--rate", "20000", "--for", "300ms", "--take", "half", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["records_in"] > 200  # the source starts over
    assert document["left"] == 0


def test_run_tells_people_what_happened(headwater):
    code, out, _ = headwater("run", "tanks.py")
    assert code == 0
    assert "200 records in, 150 to out" in out
    assert "low" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "tansk.py"], "; did you mean 'tanks.py'?"),
        (["run", "nowhere/tanks.py"], "there is no file 'nowhere/tanks.py', nor a folder 'nowhere'"),
        (["run", "tanks.py:flwo"], "tanks.py has no 'flwo'; did you mean 'flow'?"),
        (["run", "tanks.py", "--policy", "longst_queue"], "did you mean 'longest_queue'?"),
        (["run", "tanks.py", "--take", "some"], "--take is 'all', 'half' or a number"),
        (["run", "tanks.py", "--on", "thread"], "did you mean 'threads'?"),
        (["run", "tanks.py", "--for", "30"], "cannot read duration '30'"),
        (["run", "tanks.py", "--input", "levels.xls"], "known endings are '.csv'"),
        (["run", "riot:elt"], "did you mean 'riot:etl'?"),
        (["run", "nowhere:flow"], "cannot import 'nowhere'"),
        (["run", "tanks"], "cannot tell what flow 'tanks' is"),
        (["query", "from levels select tank", "--input", "."], "cannot tell what '.' is"),
        (["show", "tanks.py", "--form", "gif"], "unknown form 'gif'"),
        (["bench", "nothing"], "No such command 'nothing'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(headwater, words, said):
    code, out, err = headwater(*words)
    assert code == 2
    assert said in err
    assert out == ""
    assert "Traceback" not in err


def test_show_says_what_holds_at_each_sink_and_why_no_more(headwater, tmp_path):
    more = 'levels.write("copy", io.JsonLines("copy.jsonl"))\nlevels.write("shown", io.Console())\n'
    (tmp_path / "three.py").write_text(FLOW + more)
    _, out, _ = headwater("show", "three.py", "--guarantees")
    link = "sink 'shown' (Console(console)): what comes again is there twice"
    assert out.splitlines() == ["out: exactly once", "copy: exactly once", "shown: at least once", f"  {link}"]
    _, out, _ = headwater("show", "three.py", "--guarantees", "--json")
    *_, shown = json.loads(out)["sinks"]
    assert shown == {
        "sink": "shown",
        "holds": "at least once",
        "delivery": "neither",
        "sources": {"levels": "position"},
        "weakest": [link],
    }
    assert not (tmp_path / "copy.jsonl").exists()


def test_an_error_in_the_users_file_names_its_line(headwater, tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ny = x.nothing\n")
    code, _, err = headwater("run", "broken.py")
    assert code == 2
    assert "broken.py:2: AttributeError" in err


def test_a_run_that_breaks_still_prints_its_report(headwater, tmp_path):
    exits = 'import sys\nlevels.map("exit", lambda record: sys.exit("enough")).filter'
    (tmp_path / "exits.py").write_text(FLOW.replace("levels.filter", exits))
    code, out, err = headwater("run", "exits.py", "--json")
    document = json.loads(out)
    assert code == 1
    assert document["error"] == "step 'exit' ended the run: SystemExit: enough (exits.py:6, in <lambda>)"
    assert document["left"] == document["records_in"] == 200
    assert "error: step 'exit' ended the run" in err
    code, out, _ = headwater("run", "exits.py")
    assert (code, "200 records in" in out) == (1, True)


def test_a_run_in_which_every_record_dies_is_exit_code_one(headwater, tmp_path):
    broken = FLOW.replace("levels.filter", 'levels.map("break", lambda record: record["no such"]).filter')
    (tmp_path / "broken.py").write_text(broken + 'flow.dead_letters.write("dead", io.Discard())')
    code, out, err = headwater("run", "broken.py", "--json")
    assert code == 1
    assert json.loads(out)["dead_letters"] == 200
    assert "all 200 records became dead letters" in err
    assert "broken.py:" in json.loads(out)["dead_letter_examples"][0]["error"]


def test_a_folder_in_place_of_an_input_is_exit_code_two(headwater, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    code, _, err = headwater("run", "tanks.py", "--input", "folder.jsonl")
    assert code == 2
    assert "folder.jsonl: it is a directory" in err


def test_an_input_that_cannot_be_read_is_exit_code_one(headwater, tmp_path):
    (tmp_path / "damaged.parquet").write_bytes(b"no parquet")
    code, _, err = headwater("run", "tanks.py", "--input", "damaged.parquet")
    assert code == 1
    assert "damaged.parquet: it is no Parquet file, or a damaged one" in err


def test_show_draws_and_describes(headwater, tmp_path):
    assert "└─ low: filter (col.height < 150)" in headwater("show", "tanks.py")[1]
    assert headwater("show", "tanks.py", "--form", "mermaid")[1].startswith("flowchart LR")
    headwater("show", "tanks.py", "--form", "svg", "--output", "tanks.svg")
    assert (tmp_path / "tanks.svg").read_text().startswith("<svg")
    described = json.loads(headwater("show", "tanks.py", "--json")[1])
    assert [step["name"] for step in described["steps"]] == ["levels", "low", "out"]


def test_profile_writes_a_file_that_can_be_read_again(headwater, tmp_path):
    from headwater import Profile

    code, out, _ = headwater("profile", "tanks.py", "--output", "tanks.json", "--json")
    assert code == 0
    assert json.loads(out)["steps"]["low"]["selectivity"] == {"out": 0.75}
    assert Profile.load(tmp_path / "tanks.json").of("low").form == "expressions"


@pytest.mark.spark
def test_doctor_finds_this_machine_well(headwater, monkeypatch, tmp_path):
    for name in ("bash", "dirname"):  # what Spark's scripts need; no Java, so that the one of the extra is used
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, out, _ = headwater("doctor", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["works"]
    seen = {check["name"]: check["seen"] for check in document["checks"]}
    assert "MB resident" in seen["start-up"]
    spark = document["spark"]
    assert spark is not None, seen
    assert spark["java"].startswith("21.")
    assert 0 < spark["session_s"] < spark["first_output_s"]
    assert min(spark["driver_mb"], spark["jvm_mb"], spark["workers_mb"], spark["installed_mb"]) > 50


def test_every_command_has_help(headwater):
    code, out, _ = headwater("--help")
    assert code == 0
    for command in ("run", "show", "profile", "bench", "demo", "doctor"):
        assert command in out
        assert headwater(command, "--help")[0] == 0


def test_commands_work_without_the_extras_of_others():
    code = "import sys; sys.modules['lark'] = None; sys.argv[1:] = {args}; from headwater.cli import main; main()"
    help_, lacking = (
        subprocess.run([sys.executable, "-c", code.format(args=args)], capture_output=True, text=True, check=False)
        for args in (["run", "--help"], ["query", "from a select b", "--input", "x"])
    )
    assert help_.returncode == 0
    assert "Run a flow to its end" in help_.stdout
    assert lacking.stderr == "error: headwater query needs the package lark: pip install 'headwater[all]'\n"
    assert lacking.returncode == 2


SPEAKS = """
from headwater import Flow, io
flow = Flow("speaks")
flow.read("levels", io.Items([{"n": n} for n in range(3)])).write("out", SINK)
"""


@pytest.mark.parametrize("sink", ['io.JsonLines("-")', 'io.JsonLines("/dev/stdout")', 'io.JsonLines("out.jsonl")'])
def test_records_on_standard_output_are_there_alone(tmp_path, sink):
    """As a shell would run it, standard output being a file: the report is on standard error."""
    (tmp_path / "speaks.py").write_text(SPEAKS.replace("SINK", sink))
    with (tmp_path / "out.jsonl").open("w") as out:
        ran = subprocess.run(
            [sys.executable, "-c", "from headwater.cli import main; main()", "run", "speaks.py"],
            cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        {"n": n} for n in range(3)
    ]
    assert "speaks on engine: 3 records in, 3 to out" in ran.stderr


@pytest.mark.parametrize("sink", ['io.JsonLines("-")', 'io.Csv("-")', "io.Console()", "io.Console(json=True)"])
def test_a_document_among_records_is_refused(headwater, tmp_path, sink):
    (tmp_path / "speaks.py").write_text(SPEAKS.replace("SINK", sink))
    code, out, err = headwater("run", "speaks.py", "--json")
    assert code == 2
    assert err == f"error: {json.loads(out)['error']}\n"
    assert "'out' writes records there; write them to a file" in err
    code, out, _ = headwater("run", "speaks.py", "--json", "--output", "folder")
    assert json.loads(out)["records_out"] == {"out": 3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "1s"], "--every is about checkpoints, and means nothing without --checkpoint DIR"),
        (["--allow-dropped-state"], "--allow-dropped-state is about checkpoints"),
        (["--available-now"], "--available-now is Spark's and means nothing with --on engine"),
        (["--buckets", "3"], "--buckets is Spark's and means nothing with --on engine"),
        (["--on", "spark", "--buckets", "0"], "--buckets is a whole number above 0; got 0"),
        (["--on", "spark", "--every", "0s"], "--every is a time above 0; got '0s'"),
        (["--checkpoint", ""], "is it a variable that is not set?"),
        (["--prometheus", "99999"], "ports go from 1 to 65535"),
        (["--prometheus", "gateway"], "--prometheus takes an address and a port, such as 9100 or 0.0.0.0:9100"),
        (["--prometheus", "192.0.2.1:9100"], "is the address one of this machine's?"),
        (["--output", __file__], "--output names a folder"),
        (["--output", ""], "--output is empty; is it a variable that is not set?"),
        (["--input", "r="], "--input 'r=' names nothing to read; is it a variable that is not set?"),
        (["--for", "0s"], "--for is how long the flow reads, above 0; got '0s'"),
        (["--for", ""], "--for: "),
        (["--hang", "0s"], "--hang is a time above 0; got '0s'"),
        (["--when-full", "wait"], "--when-full is one of 'block', 'shed', 'spill'; got 'wait'"),
        (["--on-hang", "kill"], "--on-hang is one of 'stop', 'warn'; got 'kill'"),
        (
            ["--on", "spark", "--backfill", "t", "--checkpoint", "kept", "--until", "yesterday"],
            "--until is a moment such as",
        ),
        (["--web-listen", "127.0.0.1:0"], "--web-listen says where the dashboard is, and means nothing without --web"),
        (["--rate", "abc"], "--rate is records/s, a number above 0, or with a unit such as 90/min; got 'abc'"),
        (["--rate", "0"], "--rate is records/s, a number above 0, or with a unit such as 90/min; got '0'"),
        (["--rate", "5/fortnight"], "--rate is records/s, a number above 0, or with a unit"),
        (["--realtime"], "--realtime is about a promise, and means nothing without --promise RATE"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(typed, tmp_path, arguments, said):
    (tmp_path / "own.py").write_text(
        "from headwater import Flow, io\nflow = Flow('own')\nflow.read('r', io.Items([{'x': 1}])).write('w', io.Discard())\n"
    )
    code, _, heard = typed("run", "own.py", *arguments)
    assert (code, said in heard) == (2, True), heard
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != "") == ["own.py"]


def test_a_port_that_is_refused_leaves_what_is_there_as_it_is(typed, tmp_path):
    (tmp_path / "own.py").write_text(
        "from headwater import Flow, io\nflow = Flow('own')\n"
        "flow.read('r', io.Items([{'x': 1}])).write('w', io.JsonLines('kept.jsonl'))\n"
    )
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"x": 7}\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (99999, taken.getsockname()[1]):
            code, _, heard = typed("run", "own.py", "--prometheus", str(port))
            assert (code, "cannot serve metrics on" in heard) == (2, True), heard
    assert kept.read_text() == '{"x": 7}\n'


def test_a_site_is_called_what_its_token_is_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    token = make_token(tmp_path / "certificates", "press hall")
    folder = _folder(None, token, None)
    assert folder.path == tmp_path / ".headwater" / "site-press hall"
    assert _name(folder, None, token) == "press hall"
    with pytest.raises(RunError, match="this is no token of a site"):
        _folder(None, "half a tok", None)


def test_settings_of_spark_are_for_a_site_on_spark(typed):
    code, _, heard = typed("site", "--join", "127.0.0.1:1", "--name", "barn", "-c", "spark.executor.memory=4g")
    assert (code, "-c is a setting of Spark's; say --kind spark too" in heard) == (2, True), heard


def test_metrics_are_served_at_the_address_that_is_said(typed, tmp_path):
    (tmp_path / "own.py").write_text(
        "import time\nimport urllib.request\nfrom headwater import Flow, io\n"
        "def asked(record, tries=500):\n"
        "    try:\n"
        "        answer = urllib.request.urlopen(f'http://127.0.0.2:{record[\"port\"]}/metrics', timeout=10)\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "        return asked(record, tries - 1) if tries else {'text': ''}\n"
        "    return {'text': answer.read().decode()}\n"
        "def flow():\n"
        "    made = Flow('own')\n"
        "    ports = made.read('r', io.JsonLines('ports.jsonl', {'port': int}))\n"
        "    ports.map('asked', asked, out={'text': str}).write('w', io.JsonLines('told.jsonl'))\n"
        "    return made\n"
    )
    with socket.socket() as taken:  # at the address that a bare port would be of
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "ports.jsonl").write_text(json.dumps({"port": port}) + "\n")
        code, _, heard = typed("run", "own.py:flow", "--prometheus", f"127.0.0.2:{port}")
    assert code == 0, heard
    assert (
        'headwater_records_out_total{flow="own",step="r"}' in json.loads((tmp_path / "told.jsonl").read_text())["text"]
    )


def test_a_file_that_is_no_python_is_told(typed, tmp_path):
    (tmp_path / "in.jsonl").write_text("{}\n")
    code, _, heard = typed("run", tmp_path / "in.jsonl")
    assert (code, "is no Python file" in heard) == (2, True), heard


@pytest.mark.parametrize("command", [["run"], ["profile"], ["run", "--live"]])
def test_names_in_brackets_are_shown_as_they_are(headwater, tmp_path, command):
    (tmp_path / "levels.py").write_text(
        "from headwater import Flow, io\nflow = Flow('plant[/a]')\n"
        "flow.read('height [m]', io.Items([{'n': 1}])).write('out[/]', io.Discard())\n"
    )
    code, out, _ = headwater(command[0], "levels.py", *command[1:])
    assert code == 0
    assert all(name in out for name in ("plant[/a]", "height [m]", "out[/]"))


def test_what_is_logged_shows_what_a_terminal_would_obey(tmp_path):
    (tmp_path / "flow.py").write_text(FLOW + "import logging\nlogging.warning('gone\\x1b[2J')\n")
    words = [sys.executable, "-m", "headwater", "run", "flow.py", "--json"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert said == "gone\\x1b[2J\n"


def test_an_error_shows_what_a_terminal_would_obey(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["headwater", "run", "no\x1b[2Jsuch.py"])
    monkeypatch.setattr("headwater.cli.main_begins", lambda arguments: None)
    with pytest.raises(SystemExit):
        main()
    assert r"no\x1b[2Jsuch.py" in capsys.readouterr().err


def test_settings_of_spark_are_given_on_the_command_line(headwater, monkeypatch):
    given = {}

    def started(flow, **options):
        given.update(options)
        raise RunError("that is enough")

    monkeypatch.setattr("headwater.spark.start", started)
    monkeypatch.setattr("headwater.cli.run._prepare_spark", lambda *given: None)  # a Java that nobody would take
    settings = ["-c", "spark.driver.memory=3g", "--conf", "spark.driver.extraJavaOptions=-Da=b"]
    code, _, err = headwater("run", "tanks.py", "--on", "spark", *settings)
    assert "that is enough" in err
    assert given["settings"] == {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-Da=b"}
    code, _, err = headwater("run", "tanks.py", "--on", "spark", "-c", "driver.memory=3g")
    assert (code, "-c takes a setting of Spark's, such as spark.driver.memory=4g; got 'driver.memory=3g'" in err) == (
        2,
        True,
    )
    code, _, err = headwater("run", "tanks.py", "-c", "spark.driver.memory=3g")
    assert (code, "--conf is Spark's and means nothing with --on engine" in err) == (2, True)


@pytest.mark.parametrize("sink", ['JsonLines("-")', 'Csv("-")', "Console(limit=10**9)"])
def test_a_run_ends_when_nobody_reads_its_output_any_more(tmp_path, sink):
    (tmp_path / "pipe.py").write_text(
        "from headwater import Flow, io\nflow = Flow('pipe')\n"
        "numbers = flow.read('numbers', io.Generate(lambda numbers: {'n': numbers}, {'n': int}, rate=20_000))\n"
        f"numbers.write('out', io.{sink})\n"
    )
    words = [sys.executable, "-m", "headwater", "run", "pipe.py", "--for", "60s"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline()
        run.stdout.close()
        said = run.stderr.read()
        assert (run.wait(), said) == (
            141,
            "",
        )  # as a shell has it for SIGPIPE: no error, and no report among other words


@pytest.mark.parametrize(
    "words",
    [["show", "pipe.py"], ["show", "pipe.py", "--json"], ["run", "pipe.py", "--json"], ["--help"], ["run", "--help"]],
    ids=" ".join,
)
def test_a_command_whose_answer_nobody_reads_ends_as_others_do(tmp_path, words):
    (tmp_path / "pipe.py").write_text(
        "from headwater import Flow, io\nflow = Flow('pipe')\n"
        "flow.read('numbers', io.Items([{'n': 1}])).write('out', io.Discard())\n"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "headwater", *words]
    done = subprocess.run(command, cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_run_that_writes_elsewhere_too_reports_what_it_left_when_nobody_reads_its_output_any_more(tmp_path):
    (tmp_path / "pipe.py").write_text(
        "from headwater import Flow, io\nflow = Flow('pipe')\n"
        "numbers = flow.read('numbers', io.Generate(lambda n: {'n': n}, {'n': int}, rate=20_000))\n"
        "numbers.write('out', io.JsonLines('-'))\nnumbers.write('kept', io.JsonLines('kept.jsonl'))\n"
    )
    words = [sys.executable, "-m", "headwater", "run", "pipe.py", "--for", "60s"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline()
        run.stdout.close()
        assert "to kept" in run.stderr.read()
        assert run.wait() == 141


@pytest.mark.parametrize("values", [[1, "x"], [1] * 1000 + ["x"]])
def test_a_query_says_which_columns_it_has_guessed_where_they_do_not_fit(headwater, tmp_path, values):
    (tmp_path / "levels.jsonl").write_text("".join(json.dumps({"height": value}) + "\n" for value in values))
    query = "from levels[height < 5] select height"
    code, _, err = headwater("query", query, "--input", "levels.jsonl")
    assert "the columns of levels.jsonl are guessed from its first lines" in err
    assert "define stream levels (height" in err
    code, out, err = headwater("query", f"define stream levels (height int); {query}", "--input", "levels.jsonl")
    assert (code, len(out.splitlines()), "guessed" in err) == (0, len(values) - 1, False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("lanes", ["1", "2"])
def test_a_run_whose_standard_streams_are_closed_writes_its_file_and_nothing_else_into_it(tmp_path, closed, lanes):
    (tmp_path / "flow.py").write_text(
        "from headwater import Flow, io\nflow = Flow('closed')\nitems = [{'n': n} for n in range(3)] + [{'n': 'x'}]\n"
        "flow.read('in', io.Items(items, {'n': int})).write('out', io.JsonLines('out.jsonl'))\n"
    )
    words = f"exec {sys.executable} -m headwater run flow.py --lanes {lanes} {closed}"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted((tmp_path / "out.jsonl").read_text().split()) == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_records_for_a_standard_output_that_is_closed_are_not_lost_in_silence(tmp_path):
    (tmp_path / "flow.py").write_text(
        "from headwater import Flow, io\nflow = Flow('closed')\n"
        "flow.read('in', io.Items([{'n': 1}])).write('out', io.JsonLines('-'))\n"
    )
    words = f"exec {sys.executable} -m headwater run flow.py >&-"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sink 'out' ended the run: standard output is closed" in done.stderr


@pytest.mark.parametrize("sink", ['JsonLines("-")', 'Csv("-")'])
def test_records_go_to_standard_output_with_a_checkpoint_too(tmp_path, sink):
    (tmp_path / "flow.py").write_text(
        "from headwater import Flow, io\nflow = Flow('piped')\n"
        f"flow.read('in', io.Items([{{'n': n}} for n in range(3)])).write('out', io.{sink})\n"
    )
    words = [sys.executable, "-m", "headwater", "run", "flow.py", "--checkpoint", "kept"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == (["n", "0", "1", "2"] if "Csv" in sink else ['{"n":0}', '{"n":1}', '{"n":2}'])
