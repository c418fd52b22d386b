"""The experiment on MQTT, in small: its load recognises what comes back, and what does not."""

import sys

import numpy as np
import pytest

from headwater.errors import RunError
from headwater_bench.experiments import mqtt
from headwater_bench.experiments.mqtt_ekuiper import rule_of
from headwater_bench.experiments.mqtt_flows import lines_for, running
from headwater_bench.experiments.mqtt_kernels import BASE, messages, results
from headwater_bench.experiments.mqtt_load import Load, Step


@pytest.mark.parametrize("qos", [0, 1])
def test_the_load_recognises_its_own_messages_by_number(qos):
    lines = lines_for("filter")
    ends, data = np.cumsum([0] + [len(line) for line in lines]), np.frombuffer(bytearray(b"".join(lines)), np.uint8)
    places = np.array([line.index(str(BASE).encode()) for line in lines])
    out = np.zeros(1 << 20, np.uint8)
    size = messages(data, ends, places, np.frombuffer(bytearray(b"load/b"), np.uint8), qos, 100, 500, out)
    late_s, times, answers = np.zeros(500, np.float32), np.zeros(500, np.int64), np.zeros(1 << 16, np.uint8)
    taken = results(out, size, 1.0, 100, 1000.0, late_s, times, answers)
    assert taken == (size, 4 * 500 * qos, 0, 0)
    assert times.tolist() == [1] * 500
    assert late_s[[0, 499]].tolist() == pytest.approx([1.0, 0.501])


@pytest.mark.parametrize(("task", "qos"), [("filter", 1), ("mean", 0), ("etl", 0), ("echo", 0)])
def test_every_message_is_answered_once(task, qos):
    load = Load(lines_for("filter" if task == "echo" else task), qos=qos)
    with running(task, load.port, qos):
        load.wait_for(1 if task == "echo" else 2)
        load.await_answer()
        step = load.step(2000, 0, 0.5)
    load.close()
    assert (step.lost, step.twice, step.share) == (0, 0, 1.0)


def test_every_message_is_answered_that_is_acknowledged_when_it_is_safe_on_disk():
    load = Load(lines_for("filter"), qos=1)
    with running("filter", load.port, 1, durable=True):
        load.wait_for(1)
        load.await_answer()  # of all messages of a while, however long a disk may take now and then
    load.close()


def test_a_rate_counts_only_when_all_below_it_are_kept():
    def step(rate, lost=0, p99_ms=5.0):
        return Step(rate, 1.0, lost, 0, 1.0, p99_ms, 0.1, 0.0)

    assert mqtt._figures([step(10), step(20), step(30, p99_ms=200.0)])["rate"] == 20
    assert mqtt._figures([step(10, lost=1)]) | {"rate": 0} == mqtt._figures([step(10, lost=1)])


def test_what_the_load_carries_is_told_over_the_rates_that_were_asked_for(monkeypatch):
    def climb(task, qos, rates, *_, **__):
        return [Step(2_000_000 if task == "echo" else 400_000, 1.0, 0, 0, 1.0, 5.0, 0.1, 0.5)]

    monkeypatch.setattr(mqtt, "_climb", climb)
    monkeypatch.setattr("shutil.which", lambda name: None)
    answer = mqtt.run()
    assert answer["generator"]["echo_over_demanded"] == {"filter": 10.0, "filter, QoS 1": 20.0, "etl": 20.0}
    assert "filter 200,000/s 10.0, filter, QoS 1 100,000/s 20.0, etl 100,000/s 20.0" in mqtt.table(answer)


#: speaks as much of eKuiper's REST interface as the experiment uses, and echoes once it has a stream and a rule
FAKE_EKUIPER = """#!{python}
import json, os, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from headwater_bench.experiments.mqtt_flows import _echo
asked = {{}}

class Rest(BaseHTTPRequestHandler):
    def answer(self, code):
        self.send_response(code)
        self.end_headers()
    def do_GET(self):
        self.answer(200)
    def do_DELETE(self):
        self.answer(404)
    def do_POST(self):
        asked[self.path] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if len(asked) == 2:
            server = asked["/rules"]["actions"][0]["mqtt"]["server"]
            assert server == os.environ["MQTT_SOURCE__DEFAULT__SERVER"]
            for _ in range(2):
                threading.Thread(target=_echo, args=(int(server.rpartition(":")[2]),), daemon=True).start()
        self.answer(201)
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(os.environ["KUIPER__BASIC__RESTPORT"])), Rest).serve_forever()
"""


@pytest.mark.parametrize("task", ["filter", "etl"])
def test_ekuiper_is_given_a_task_as_a_rule(tmp_path, task):
    (tmp_path / "bin").mkdir()
    server = tmp_path / "bin" / "kuiperd"
    server.write_text(FAKE_EKUIPER.format(python=sys.executable))
    server.chmod(0o755)
    rows = []
    steps = mqtt._climb(task, 0, (1000,), 0.2, rows, folder=tmp_path)
    assert [step.lost for step in steps] == [0]
    assert {row["system"] for row in rows} == {"eKuiper"}


def test_the_rule_of_etl_reads_every_field_from_its_place():
    rule = rule_of("etl")
    assert rule.startswith("SELECT bt, e[0]->sv AS source, e[1]->v AS longitude, e[2]->v AS latitude, ")
    assert 'CASE WHEN CAST(e[3]->v, "float") BETWEEN 0.7 AND 35.1 THEN e[3]->v ELSE NULL END AS temperature' in rule
    assert rule.endswith("AS airquality_raw FROM load")


def test_a_folder_without_ekuiper_is_told(tmp_path):
    with pytest.raises(RunError, match=r"expected bin/kuiperd there"):
        mqtt._climb("filter", 0, (1000,), 0.2, [], folder=tmp_path)
