"""Every message on docs/troubleshooting.md is one that the program gives: here each of them is made to happen."""

import ast
import re
import socket
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from headwater import Flow, Profile, StepProfile, Tumbling, agg, cli, col, engine, io
from headwater import net as nets
from headwater.errors import HeadwaterError
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = [block.strip() for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)]
SCHEMA = {"tank": str, "height": float}


def levels(schema=SCHEMA, records=()):
    return Flow("tanks").read("levels", io.Items(list(records), schema))


def unknown_column():
    levels().filter("low", col.hieght < 150)


def python_and():
    levels().filter("low", (col.height > 0) and (col.height < 5))


def goes_nowhere():
    engine.run(levels().filter("low", col.height < 150).flow)


def two_of_one_name():
    levels().filter("low", col.height < 150).filter("low", col.height < 100)


def no_time_column():
    levels({"at": int}).event_time("clock", "at")


def no_event_time():
    levels().key_by("tank").window("means", Tumbling("1 min"), n=agg.count())


def bare_number():
    Tumbling(10)


def datetime_constant():
    from datetime import UTC, datetime

    levels({"at": "time"}).filter("new", col.at > datetime(2026, 11, 15, tzinfo=UTC))


def text_for_a_time():
    stream = levels({"at": "time"}, [{"at": "2026-11-15T08:00:00Z"}])
    stream.write("out", io.Discard())
    engine.run(stream.flow)


def hanging_step(caplog):
    go_on = threading.Event()
    stream = levels({"n": int}, [{"n": 1}])
    stream.map("ask", lambda record: go_on.wait(PATIENCE_S) and record, out={"n": int}).write("out", io.Discard())
    run = engine.start(stream.flow, hang="20 ms")
    while "does it hang?" not in caplog.text:
        assert run.wait(0.01) is None
    go_on.set()
    run.wait()


def shed_records():
    stream = levels({"n": int}, [{"n": n} for n in range(5000)])
    stream.map("slow", lambda record: time.sleep(0.001) or record, out={"n": int}).write("out", io.Discard())
    engine.run(stream.flow, when_full="shed", queue_records=10, seconds=0.3)


def no_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    stream = Flow("tanks").read("levels", io.JsonLines("levels.jsonl", schema=SCHEMA))
    stream.write("out", io.Discard())
    engine.run(stream.flow)


def no_json(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "levels.jsonl").write_text("tank,height\n")
    Flow("tanks").read("levels", io.JsonLines("levels.jsonl"))


def metrics_port_taken(monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command(monkeypatch, tmp_path, "--prometheus", str(taken.getsockname()[1]))


def option_of_spark(monkeypatch, tmp_path):
    command(monkeypatch, tmp_path, "--master", "local[2]")


def unknown_policy(monkeypatch, tmp_path):
    command(monkeypatch, tmp_path, "--policy", "longst_queue")


def command(monkeypatch, folder, *words):
    (folder / "tanks.py").write_text(
        "from headwater import Flow, io\n"
        "flow = Flow('tanks')\n"
        "flow.read('levels', io.Items([{'n': 1}])).write('out', io.Discard())\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["headwater", "run", "tanks.py", *words])
    cli.main()


def without_prometheus(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    command(monkeypatch, tmp_path, "--prometheus", "0")


def unmeasured_step():
    Profile("tanks", "gateway", {"levels": StepProfile(time_s=0.0)}).of("low")


def unknown_device(monkeypatch, tmp_path):
    (tmp_path / "farm.toml").write_text(
        'name = "farm"\n[classes.gateway]\ncpu_ips = 5e9\n[wan]\nkind = "gateways"\n'
        '[[zones]]\nname = "barn"\ndevices = [{class = "gateway", count = 4}]\n'
    )
    nets.read(tmp_path / "farm.toml").device("barn/9")


#: what makes a message happen, by how the message begins
CASES = {
    "there is no column": unknown_column,
    "expression": python_and,
    "the output of step": goes_nowhere,
    "flow 'tanks' already": two_of_one_name,
    "event time must be": no_time_column,
    "a window of time": no_event_time,
    "a duration is": bare_number,
    "a constant is": datetime_constant,
    "dead letter from": text_for_a_time,
    "source levels sheds": shed_records,
    "step … has been": hanging_step,
    "cannot read": no_file,
    "cannot guess": no_json,
    "metrics for Prometheus need": without_prometheus,
    "cannot serve metrics": metrics_port_taken,
    "--master is": option_of_spark,
    "unknown policy": unknown_policy,
    "profile of flow": unmeasured_step,
    "net 'farm'": unknown_device,
}
#: messages that take a broker, a Spark or a lock to see; here they are looked up in the source
LOOKED_UP = (
    "broker",
    "… messages dropped",
    "Spark needs",
    "step … cannot run on Spark",
    "… is in use",
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:30])
def test_a_message_of_the_page_is_given(message, monkeypatch, tmp_path, capsys, caplog):
    if message.startswith(LOOKED_UP):
        assert any(pieces_in_order(message, text) for text in texts_of_the_source())
        return
    (case,) = [make for start, make in CASES.items() if message.startswith(start)]
    wanted = case.__code__.co_varnames[: case.__code__.co_argcount]
    given = {"monkeypatch": monkeypatch, "tmp_path": tmp_path, "caplog": caplog}
    try:
        case(**{name: given[name] for name in wanted})
        said = ""
    except HeadwaterError as error:
        said = str(error)
    except SystemExit:
        said = capsys.readouterr().err
    said += caplog.text
    assert pieces_in_order(message, said), said


def test_nothing_is_made_to_happen_that_the_page_does_not_mention():
    for start in (*CASES, *LOOKED_UP):
        assert any(message.startswith(start) for message in MESSAGES), start


def pieces_in_order(message, text):
    """Tell whether a text has all that stands between the … of a message."""
    return re.search(".*?".join(map(re.escape, message.split("…"))), text, re.DOTALL) is not None


@cache
def texts_of_the_source():
    """Return all texts of the program, with … for what is put in when they are used."""
    return [text for path in (ROOT / "src" / "headwater").rglob("*.py") for text in texts_of(path.read_text())]


def texts_of(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%\.?\d*[sdf]", "…", node.value)


def part(node):
    return node.value if isinstance(node, ast.Constant) else "…"
