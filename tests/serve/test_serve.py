"""A folder of flows, served by real processes that are killed, changed and stopped; what they wrote is read back."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import psutil
import pytest

from waiting import PATIENCE_S

QUICK = "every = '300 ms'"
NUMBERS = """
from headwater import Count, Flow, agg, col, io

flow = Flow("numbers")
numbers = flow.read("numbers", io.Generate(lambda n: {{"n": n, "k": n % 3}}, {{"n": int, "k": int}}, rate=3000))
numbers.filter("all", col.n >= {least}).write("out", io.JsonLines("{folder}/out.jsonl"))
(
    numbers.key_by("k")
    .window("sevens", Count({size}), count=agg.count(), top=agg.max("n"))
    .write("tops", io.JsonLines("{folder}/tops.jsonl"))
)
"""
BEAT = """
from headwater import Flow, io

flow = Flow("beat")
flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100)).write("out", io.Discard())
"""
WRONG = """
class Wrong:
    def __init__(self, path):
        pass

    def open(self, schema):
        raise OSError("no such place")


"""
BREAKS = """
from headwater import Flow, col, io

flow = Flow("breaks")
texts = ["1", "<script>alert(1)</script>", "3", "\\x00\\ud800 \\u202e"]


def number(record):
    return {"n": int(record["text"])}


(
    flow.read("texts", io.Items([{"text": text} for text in texts], {"text": str}))
    .map("number", number, out={"n": int})
    .write("out", io.JsonLines("FOLDER/numbers.jsonl"))
)
"""
HANGS = """
import time

from headwater import Flow, io


def hang(record):
    time.sleep(1000)
    return record


flow = Flow("hangs")
(
    flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100))
    .map("hang", hang)
    .write("out", io.Discard())
)
"""


def numbers(folder, least=0, size=7):
    return NUMBERS.format(folder=folder, least=least, size=size)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def written(serving, path):
    """Wait until a file has more lines than it has now."""
    before = whole_lines(path)
    serving.until(lambda: whole_lines(path) > before, f"more in {path.name}")


def whole_lines(path):
    """Count the lines of a file to which somebody writes: the last one may be half there."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_all_there(folder):
    """Read back what was written: every number once, every window once, with what belongs into it."""
    found = [record["n"] for record in lines(folder / "out.jsonl")]
    assert sorted(found) == list(range(len(found)))  # lanes keep the order of each key alone
    tops = lines(folder / "tops.jsonl")
    for key in range(3):
        of_key = [record["top"] for record in tops if record["k"] == key]
        assert of_key == [key + 3 * (7 * (n + 1) - 1) for n in range(len(of_key))]
    assert {record["count"] for record in tops} == {7}
    return len(found)


def test_a_flow_loses_and_doubles_nothing_whoever_is_killed_and_whatever_changes(serving, tmp_path, alive):
    out = tmp_path / "out.jsonl"
    serving.write("numbers", numbers(tmp_path), QUICK)
    serving.write("beat", BEAT)
    serving.start()
    first, beat = serving.until_running("numbers"), serving.until_running("beat")
    written(serving, out)

    os.kill(first, signal.SIGKILL)  # a flow
    serving.until(lambda: "numbers: died: killed by SIGKILL" in serving.said.read_text(), "the reason")
    second = serving.until_running("numbers", but=first)
    assert (serving.flow("numbers")["restarts"], serving.flow("beat")["pid"]) == (1, beat)
    written(serving, out)

    serving.write("numbers", numbers(tmp_path, least=-1))  # changed
    third = serving.until_running("numbers", but=second)
    assert serving.flow("numbers")["restarts"] == 1
    written(serving, out)

    serving.write("numbers", numbers(tmp_path, size=8))  # changed, so that it does not fit what is kept
    refused = serving.until(lambda: serving.flow("numbers")["change_refused"], "the refusal")
    assert "sevens" in refused
    assert serving.until_running("numbers") == third
    written(serving, out)
    serving.write("numbers", numbers(tmp_path))
    fourth = serving.until_running("numbers", but=third)
    assert serving.flow("numbers")["change_refused"] is None
    written(serving, out)

    serving.process.kill()  # the server
    serving.process.communicate()
    serving.start()
    fifth = serving.until_running("numbers")
    assert fifth != fourth
    assert not alive(fourth)
    assert not alive(beat)
    written(serving, out)

    assert serving.stop() == 0
    assert not alive(fifth)
    assert check_all_there(tmp_path) > 1000


def test_flows_of_the_same_name_have_metrics_of_their_own_by_their_files(serving):
    for name in ("north", "south"):
        serving.write(name, BEAT)
    serving.start()
    for name in ("north", "south"):
        serving.until_running(name)
    lines = [each for each in serving.ask("/metrics")[1].splitlines() if not each.startswith("#")]
    series = [each.rpartition(" ")[0] for each in lines]
    assert sorted(series) == sorted(set(series))
    by_metric = {}
    for each in series:
        metric, _, labels = each.partition("{")
        by_metric.setdefault(metric, set()).add(labels.split('flow="')[1].partition('"')[0])
    assert by_metric["headwater_flow_up"] == {"north", "south"}
    assert set(map(frozenset, by_metric.values())) == {frozenset({"north", "south"})}  # so that they can be joined


def test_a_file_whose_import_does_not_end_is_told_and_ended_and_tried_again(serving, alive):
    serving.write("endless", "import time\ntime.sleep(1000)\n", "import_within = 7.0")
    serving.start(ready=False)
    why = lambda: (serving.flow("endless") or {}).get("why") or ""  # noqa: E731
    serving.until(lambda: why() == "has not started for 5 s: importing endless.py", "a word about it")
    first = serving.flow("endless")["pid"]
    serving.until(lambda: serving.flow("endless")["restarts"] >= 1, "its end")
    assert not alive(first)
    serving.until(lambda: serving.flow("endless")["pid"] not in (None, first), "another try")
    said = serving.said.read_text()
    assert "endless: has not started for 5 s: importing endless.py" in said
    assert "died: did not start within 7 s: importing endless.py does not end" in said
    serving.process.kill()
    serving.process.communicate()


def test_files_that_come_go_and_are_wrong(serving, tmp_path, alive):
    serving.write("beat", BEAT)
    serving.write("wrong", "from headwater import Flow\n\nflow = Flow(\n")
    serving.write("unset", BEAT, "evry = '1 s'")
    serving.write("lane", BEAT, "[options]\nlane = 2")
    serving.start()
    assert "did you mean 'lanes'?" in serving.flow("lane")["why"]
    (serving.folder / "lane.py").unlink()
    beat = serving.until_running("beat")
    wrong, unset = serving.flow("wrong"), serving.flow("unset")
    assert (wrong["state"], unset["state"]) == ("refused", "refused")
    assert "wrong.py:3: SyntaxError" in wrong["why"]
    assert "unset.toml" in unset["why"]
    assert "did you mean 'every'" in unset["why"]
    assert serving.ask("/api/v1/flows/wrong/graph")[0] == 409

    serving.write("wrong", BEAT.replace("beat", "mended"))
    mended = serving.until_running("wrong")
    (serving.folder / "wrong.py").unlink()
    serving.until(lambda: serving.ask("/api/v1/flows/wrong")[0] == 404, "its end")
    assert not alive(mended)
    assert serving.until_running("beat") == beat

    # what is stopped stays so, and is told
    assert serving.ask("/api/v1/flows/beat/stop", "POST")[0] == 202
    serving.until(lambda: serving.state_of("beat") == "stopped")
    code, out, _ = serving.typed("status", "--json")
    (server,) = json.loads(out)["servers"]
    assert code == 0
    assert {flow["name"]: flow["state"] for flow in server["flows"]}["beat"] == "stopped"
    assert "evry" in serving.typed("status", "--state", serving.state)[1]
    code, _, err = serving.typed("serve", serving.folder, "--state", serving.state)
    assert (code, f"process {serving.process.pid}" in err) == (2, True)
    assert serving.stop() == 0
    assert serving.typed("status", "--state", serving.state)[0] == 2

    code, out, _ = serving.typed("serve", serving.folder, "--state", serving.state, "--check", "--json")
    assert code == 1
    assert {each["name"]: each["runs"] for each in json.loads(out)} == {"beat": True, "unset": False}

    serving.start()
    assert serving.state_of("beat") == "stopped"
    serving.ask("/api/v1/flows/beat/start", "POST")
    serving.until_running("beat")


def test_a_flow_that_would_go_on_under_a_csv_header_of_other_columns_does_not_take_over(serving, tmp_path):
    table = """
from headwater import Flow, io

flow = Flow("table")
rows = flow.read("rows", io.Generate(lambda n: {"n": n, "m": n}, {"n": int, "m": int}, rate=100))
rows.select("pick", COLUMNS).write("out", io.Csv("FOLDER/table.csv"))
""".replace("FOLDER", str(tmp_path))
    serving.write("table", table.replace("COLUMNS", "'n'"), QUICK)
    serving.start()
    first = serving.until_running("table")
    serving.until(lambda: list(serving.state.glob("**/checkpoint/*.checkpoint")), "a checkpoint")
    serving.write("table", table.replace("COLUMNS", "'m', 'n'"))
    refused = serving.until(lambda: serving.flow("table")["change_refused"], "the refusal")
    assert "its header is n, and the columns to write are m,n" in refused
    assert serving.until_running("table") == first


def test_a_change_that_seems_right_and_does_not_start_leaves_the_flow_as_it_was(serving, tmp_path):
    out = tmp_path / "out.jsonl"
    good = BEAT.replace("io.Discard()", f"io.JsonLines({str(out)!r})")
    wrong = good.replace("flow =", WRONG + "flow =").replace("io.JsonLines", "Wrong")
    serving.write("beat", good, QUICK)
    serving.start()
    first = serving.until_running("beat")
    written(serving, out)
    serving.write("beat", wrong)
    refused = serving.until(lambda: serving.flow("beat")["change_refused"], "the refusal")
    assert "no such place" in refused
    serving.until_running("beat", but=first)
    written(serving, out)
    serving.stop()
    found = [record["n"] for record in lines(out)]
    assert found == list(range(len(found)))


def test_of_two_flows_that_write_one_file_the_second_is_refused(serving, tmp_path):
    out = tmp_path / "out.jsonl"
    beats = BEAT.replace("io.Discard()", f"io.JsonLines({str(out)!r})")
    serving.write("beat", beats, QUICK)
    serving.write("twin", beats.replace("n}", "-n}"), QUICK)
    serving.write("null", beats.replace(str(out), "/dev/null"))
    serving.write("null2", beats.replace(str(out), "/dev/null"))
    code, said, _ = serving.typed("serve", serving.folder, "--state", serving.state, "--check", "--json")
    looked = {each["name"]: each["why"] for each in json.loads(said)}
    assert (code, [name for name, why in looked.items() if why is not None]) == (1, ["twin"])
    assert f"it writes {out}, which flow 'beat' writes too" in looked["twin"]

    twin = (serving.folder / "twin.py").rename(tmp_path / "twin.py")
    serving.start()
    serving.until_running("beat")
    written(serving, out)
    serving.ask("/api/v1/flows/beat/stop", "POST")
    serving.until(lambda: serving.state_of("beat") == "stopped")
    twin.rename(serving.folder / "twin.py")
    serving.until(lambda: serving.flow("twin").get("state") == "refused", "the refusal")
    assert "which flow 'beat' writes too" in serving.flow("twin")["why"]
    serving.ask("/api/v1/flows/beat/start", "POST")
    serving.until_running("beat")
    written(serving, out)
    serving.stop()
    assert [record["n"] for record in lines(out)] == list(range(len(lines(out))))


def test_what_can_be_read_of_a_flow(serving, tmp_path):
    serving.write("numbers", numbers(tmp_path), QUICK)
    serving.start()
    serving.until_running("numbers")
    sampled = lambda: serving.ask("/api/v1/flows/numbers/metrics")  # noqa: E731
    serving.until(lambda: (told := sampled())[0] == 200 and told[1]["last"]["records_in"] > 0, "a sample")
    sample = sampled()[1]
    assert sample["total"]["records_in"] >= sample["last"]["records_in"] > 0
    assert {step["name"] for step in sample["last"]["steps"]} >= {"numbers", "all", "sevens", "out", "tops"}
    assert serving.ask("/api/v1/flows/numbers/metrics/history")[1][-1]["total"]["records_in"] > 0
    graph = serving.ask("/api/v1/flows/numbers/graph")[1]
    columns = {step["name"]: step["column"] for step in graph["steps"]}
    assert (columns["numbers"], columns["all"], columns["out"]) == (0, 1, 2)
    (by_key,) = [stream for stream in graph["streams"] if stream["to"] == "sevens"]
    assert (by_key["from"], by_key["keys"]) == ("numbers", ["k"])
    serving.until(lambda: serving.ask("/api/v1/flows/numbers/checkpoints")[1], "a checkpoint")
    assert serving.ask("/api/v1/flows/numbers/checkpoints")[1][-1]["restorable"]
    assert serving.ask("/api/v1/flows/numbers/log")[1] == {"lines": []}
    assert serving.ask("/api/v1/promises")[1] == {"supervisor": False}
    metrics = serving.ask("/metrics")[1]
    assert 'headwater_records_in_total{flow="numbers",step="all"}' in metrics
    assert 'headwater_flow_up{flow="numbers",state="running"} 1.0' in metrics

    at = urlsplit(serving.note["url"])
    line = http.client.HTTPConnection(at.hostname, at.port, timeout=PATIENCE_S)
    line.request("GET", "/api/v1/flows/numbers/metrics/stream", headers={"Authorization": f"Bearer {serving.token}"})
    answer = line.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    seen = {}
    while len(seen) < 2 or seen["sample"] < 2:
        what = answer.readline().decode().removeprefix("event: ").strip()
        told = json.loads(answer.readline().decode().removeprefix("data: "))
        assert answer.readline() == b"\n"
        seen[what] = seen.get(what, 0) + 1
        assert told["total"]["records_in"] if what == "sample" else told["state"]
    line.close()


def test_dead_letters_are_listed_shown_and_replayed_whatever_is_in_them(serving, tmp_path):
    serving.write("breaks", BREAKS.replace("FOLDER", str(tmp_path)))
    serving.start()
    serving.until(lambda: serving.state_of("breaks") == "ended")
    letters = serving.ask("/api/v1/flows/breaks/dead")[1]["letters"]
    (first,) = [letter for letter in letters if letter["record"] == {"text": "<script>alert(1)</script>"}]
    (second,) = [letter for letter in letters if letter != first]
    assert "x00" in second["record"]  # no JSON can be made of half a pair of surrogates
    assert first["step"] == "number"
    page = serving.ask(f"/api/v1/flows/breaks/dead?after={letters[0]['id']}&limit=1&step=number")[1]
    assert page == {"letters": letters[1:], "more": False}
    assert serving.ask(f"/api/v1/flows/breaks/dead/{first['id']}")[1] == first
    assert serving.ask("/api/v1/flows/breaks/dead/999")[0] == 404
    asked = {"ids": [first["id"]], "set": {"text": "2"}}
    status, done = serving.ask("/api/v1/flows/breaks/dead/replay", "POST", asked)
    assert (status, done["released"], done["kept"]) == (200, [first["id"]], {})
    assert sorted(record["n"] for record in lines(tmp_path / "numbers.jsonl")) == [1, 2, 3]
    status, done = serving.ask("/api/v1/flows/breaks/dead/replay", "POST", {})
    assert (status, done["released"], list(done["kept"])) == (200, [], [str(second["id"])])
    assert serving.ask("/api/v1/flows/breaks/dead/replay", "POST", {"ids": [999]})[0] == 409
    serving.until(lambda: serving.state_of("breaks") == "ended")
    assert sorted(record["n"] for record in lines(tmp_path / "numbers.jsonl")) == [1, 2, 3]


def test_a_flow_that_has_ended_is_not_run_again_by_a_replay(serving, tmp_path):
    serving.write("breaks", BREAKS.replace("FOLDER", str(tmp_path)), "checkpoint = false")
    serving.start()
    serving.until(lambda: serving.state_of("breaks") == "ended")
    letters = serving.ask("/api/v1/flows/breaks/dead")[1]["letters"]
    (asked,) = [{"ids": [each["id"]], "set": {"text": "2"}} for each in letters if isinstance(each["record"], dict)]
    status, done = serving.ask("/api/v1/flows/breaks/dead/replay", "POST", asked)
    assert (status, done["released"]) == (200, asked["ids"])
    assert serving.state_of("breaks") == "ended"
    assert sorted(record["n"] for record in lines(tmp_path / "numbers.jsonl")) == [1, 2, 3]


def test_a_replay_of_no_dead_letter_leaves_the_flow_alone(serving):
    serving.write("beat", BEAT)
    serving.start()
    pid = serving.until_running("beat")
    for asked in ({}, {"step": "beats"}):
        status, done = serving.ask("/api/v1/flows/beat/dead/replay", "POST", asked)
        assert (status, done) == (200, {"released": [], "kept": {}, "report": None})
    status, refusal = serving.ask("/api/v1/flows/beat/dead/replay", "POST", {"ids": [3]})
    assert (status, "there is no dead letter 3" in refusal["error"]) == (409, True)
    flow = serving.ask("/api/v1/flows/beat")[1]
    assert (flow["state"], flow["pid"]) == ("running", pid)


def test_a_step_that_hangs_holds_up_a_stop_for_so_long_and_no_longer(serving, alive):
    serving.write("hangs", HANGS, "stop_within = 1.0\n[options]\ngrace_s = 0.5")
    serving.write("beat", BEAT)
    serving.start()
    hangs, beat = serving.until_running("hangs"), serving.until_running("beat")
    assert serving.stop() == 1
    assert "hangs: does not stop in time" in serving.said.read_text()
    assert not alive(hangs)
    assert not alive(beat)


def test_a_second_signal_does_not_wait(serving, alive):
    serving.write("hangs", HANGS, "[options]\ngrace_s = 0.5")
    serving.start()
    hangs = serving.until_running("hangs")
    serving.process.send_signal(signal.SIGTERM)
    serving.until(lambda: serving.state_of("hangs") == "stopping")
    assert serving.ask("/readyz")[0] == 503
    assert serving.ask("/healthz")[0] == 200
    serving.stop(signal.SIGINT)
    assert not alive(hangs)


def test_a_promised_flow_is_served_with_its_promise_and_keeps_its_dead_letters(serving):
    broken = BEAT.replace(".write(", '.map("odd", lambda r: {"n": 1 // (r["n"] % 100)}, out={"n": int}).write(')
    serving.write("beat", broken, "promise = '200/s'\nbest_effort = true")
    serving.start(ready=False)
    serving.until_running("beat")
    (lane,) = serving.until(lambda: serving.ask("/api/v1/promises")[1]["lanes"], "the promise")
    assert (lane["flow"], lane["pid"], lane["contract"]["rate_hz"]) == ("beat", serving.flow("beat")["pid"], 200.0)
    letters = serving.until(lambda: serving.ask("/api/v1/flows/beat/dead")[1]["letters"], "a dead letter")
    assert "ZeroDivisionError" in letters[0]["error"]
    assert 'headwater_promise_windows{flow="beat",outcome="kept",cause=""}' in serving.ask("/metrics")[1]
    assert serving.stop() == 0


@pytest.mark.thorough
def test_the_process_of_a_flow_that_does_not_notice_that_its_server_is_gone_is_ended_by_the_next(
    serving, tmp_path, alive
):
    serving.write("numbers", numbers(tmp_path), f"{QUICK}\nstop_within = 0.5")
    serving.start()
    first = serving.until_running("numbers")
    written(serving, tmp_path / "out.jsonl")
    os.kill(first, signal.SIGSTOP)  # as if it were in code that lets nothing else run
    serving.process.kill()
    serving.process.communicate()
    serving.start(ready=False)
    serving.until(lambda: f"in use by process {first} since" in serving.said.read_text(), "that it waits")
    assert serving.until_running("numbers") != first
    assert not alive(first)
    written(serving, tmp_path / "out.jsonl")
    assert serving.stop() == 0
    check_all_there(tmp_path)


@pytest.mark.thorough
def test_a_flow_in_lanes_goes_on_after_a_kill_and_ends_with_all_of_them(serving, tmp_path, alive):
    serving.write("numbers", numbers(tmp_path), f"{QUICK}\n[options]\nlanes = 2")
    serving.start()
    first = serving.until_running("numbers")
    lanes = psutil.Process(first).children()
    assert lanes
    written(serving, tmp_path / "out.jsonl")
    os.kill(first, signal.SIGKILL)
    second = serving.until_running("numbers", but=first)
    assert not any(alive(lane.pid) for lane in lanes)
    written(serving, tmp_path / "out.jsonl")
    serving.write("numbers", numbers(tmp_path, least=-1))
    serving.until_running("numbers", but=second)
    written(serving, tmp_path / "out.jsonl")
    assert serving.stop() == 0
    check_all_there(tmp_path)


def test_systemd_hears_that_it_is_ready_alive_and_stopping(serving, tmp_path):
    serving.write("beat", BEAT)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        serving.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        serving.start(ready=False)
        heard = b""
        while b"READY=1" not in heard or heard.count(b"WATCHDOG=1") < 3:
            heard += manager.recv(1000) + b"\n"
        assert serving.state_of("beat") == "running"
        assert serving.stop() == 0
        while b"STOPPING=1" not in heard:
            heard += manager.recv(1000)


def test_a_port_that_is_taken_is_told_before_any_flow_is_started(serving):
    serving.write("beat", BEAT)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        code, _, err = serving.typed("serve", serving.folder, "--state", serving.state, "--listen", listen)
    assert code == 2
    assert "is the port taken" in err
    assert "starting" not in err


def can_be_first():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_be_first(), reason="this user may not make a process namespace")
def test_the_first_process_of_a_container_reaps_what_is_left_to_it_and_drains(serving, tmp_path):
    orphan = "import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.2 & exit'])\n"
    serving.write("numbers", orphan + numbers(tmp_path), QUICK)
    plain = serving.command
    serving.command = lambda *words: ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *plain(*words)]
    serving.start()
    lane = serving.until_running("numbers")
    assert lane < 100  # numbers of its own: it is a container
    written(serving, tmp_path / "out.jsonl")
    (first,) = psutil.Process(serving.process.pid).children()
    serving.until(lambda: len(first.children()) == 1, "that nothing but the flow is left")
    first.terminate()
    serving.process.communicate(timeout=PATIENCE_S)
    assert serving.process.returncode == 0
    assert "killed" not in serving.said.read_text()
    check_all_there(tmp_path)
