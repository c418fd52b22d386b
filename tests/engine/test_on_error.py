"""What `on_error` of a step does about records that break it: dead letters, another try, the end of the run."""

import json
import threading

import pytest
from tests.engine.test_trouble import Endless

from headwater import Flow, engine, io, retry
from headwater.errors import FlowError, InputError, RunError
from headwater.flow.endpoints import Writer
from waiting import wait_until

RUNNERS = ["engine", "threads"]


def numbers(count=1000):
    return io.Items([{"n": n} for n in range(count)])


class Away:
    """A sink that is away for some calls, and then collects."""

    def __init__(self, failures):
        self.failures, self.records, self.calls = failures, [], 0

    def open(self, schema) -> Writer:
        return self

    def write(self, batch):
        self.calls += 1
        if self.calls <= self.failures:
            raise InputError("the broker is away")
        self.records += batch.rows()

    def close(self):
        pass


@pytest.mark.parametrize("on", RUNNERS)
def test_a_sink_that_is_away_for_a_moment_gets_all_records_in_order(on):
    flow, sink = Flow("away"), Away(failures=4)
    flow.read("r", numbers()).write("w", sink, on_error=retry(times=5, backoff="1 ms"))
    report = engine.run(flow, on=on, chunk=50)
    assert [row["n"] for row in sink.records] == list(range(1000))
    assert (report.dead_letters, report.left, report.retries) == (0, 0, 4)
    assert report.last.steps["w"].to_json()["retries"] == 4 == report.to_json()["retries"]
    assert "tried again 4 times: step w" in str(report)
    assert report.last.records_out["w"] == report.last.steps["w"].records_in == 1000


@pytest.mark.parametrize("on", RUNNERS)
def test_what_fails_every_time_is_a_dead_letter_once_all_tries_are_used_up(on):
    flow, dead = Flow("gone"), io.Collect()
    flow.read("r", numbers(10)).write("w", Away(failures=10**6), on_error=retry(times=2, backoff="1 ms"))
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, on=on)
    assert report.dead_letters == len(dead.records) == 10
    assert report.retries == 2
    assert all("the broker is away" in letter["error"] for letter in dead.records)


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("verb", ["map", "flat_map", "process"])
def test_a_function_is_called_again_for_the_record_that_failed_and_for_no_other(on, verb):
    calls, failures = [], {30: 2, 70: 100, 71: 1, 99: 100}

    def step(record):
        n = record["n"]
        calls.append(n)
        if failures.get(n, 0) > 0:
            failures[n] -= 1
            raise OSError(f"{n} failed")
        return record

    flow, out, dead = Flow("function"), io.Collect(), io.Collect()
    read = flow.read("r", numbers(100))
    policy = retry(times=3, backoff="1 ms")
    if verb == "process":
        made = read.key_by("n").process("step", lambda s, record: (1, step(record)), on_error=policy)
    elif verb == "map":
        made = read.map("step", step, on_error=policy)
    else:
        made = read.flat_map("step", lambda record: [step(record)], on_error=policy)
    made.write("w", out)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, on=on)
    assert [row["n"] for row in out.records] == [n for n in range(100) if n not in (70, 99)]
    assert [json.loads(letter["record"])["n"] for letter in dead.records] == [70, 99]
    assert {n: calls.count(n) for n in range(100)} == {n: {30: 3, 70: 4, 71: 2, 99: 4}.get(n, 1) for n in range(100)}
    assert report.retries == 2 + 3 + 1 + 3
    step_counts = report.last.steps["step"]
    assert (step_counts.records_in, step_counts.records_out, step_counts.dead_letters) == (100, 98, 2)


@pytest.mark.parametrize("on", RUNNERS)
def test_records_without_a_key_stay_dead_letters_beside_those_that_are_tried_again(on):
    rows = [{"k": float("nan") if n % 3 == 0 else float(n), "n": n} for n in range(30)]
    left = {7: 1, 20: 9}

    def step(state, record):
        if left.get(record["n"], 0) > 0:
            left[record["n"]] -= 1
            raise OSError("again")
        return 1, record

    flow, out, dead = Flow("keyless"), io.Collect(), io.Collect()
    flow.read("r", io.Items(rows)).key_by("k").process("p", step, on_error=retry(times=1, backoff="1 ms")).write(
        "w", out
    )
    flow.dead_letters.write("dead", dead)
    engine.run(flow, on=on)
    assert [row["n"] for row in out.records] == [n for n in range(30) if n % 3 and n != 20]
    assert len(dead.records) == 11


@pytest.mark.parametrize("on", RUNNERS)
def test_a_pipeline_that_tries_again_does_not_hold_up_another(on):
    given_in = threading.Event()

    def refuses(record):
        if not given_in.is_set():
            raise OSError("not yet")
        return record

    flow, out = Flow("two"), io.Collect()
    flow.read("r", Endless(limit=3000)).map("m", refuses, on_error=retry(within="10 min", longest="200 ms")).write(
        "w", out
    )
    flow.read("other r", Endless(limit=20_000)).write("other w", io.Discard())
    run = engine.start(flow, on=on, queue_records=500, workers=1)  # one worker, and it is not the one that waits
    try:
        wait_until(lambda: run.sample().records_out["other w"] == 20_000)
        assert run.sample().records_out["w"] == 0
        wait_until(lambda: run.sample().steps["m"].retries > 1)
    finally:
        given_in.set()
        report = run.wait()
    assert [row["n"] for row in out.records] == list(range(3000))
    assert report.dead_letters == 0


@pytest.mark.parametrize("on", RUNNERS)
def test_what_waits_to_be_tried_again_is_counted_as_left_when_the_run_is_stopped_at_once(on):
    flow = Flow("left")
    flow.read("r", numbers(100)).write(
        "w", Away(failures=10**6), on_error=retry(within="1 h", backoff="1 h", longest="1 h")
    )
    run = engine.start(flow, on=on)
    wait_until(lambda: run.sample().steps["w"].retries == 1)
    run.abort()
    report = run.wait()
    assert report.left == report.last.records_in


@pytest.mark.parametrize("on", RUNNERS)
def test_a_checkpoint_does_not_wait_for_a_pause_and_has_what_is_to_be_tried_again(on, tmp_path):
    def flow(away):
        made = Flow("kept")
        read = made.read("r", io.Generate(lambda n: {"n": n}, {"n": int}, rate=50_000, count=300))
        seen = read.map("all", lambda record: record)
        sink = Away(failures=10**6 if away else 0)
        seen.map("m", sends(away), on_error=retry(within="1 h", backoff="1 h", longest="1 h")).write(
            "w", sink if not away else io.Discard()
        )
        return made, sink

    def sends(away):
        def send(record):
            if away and record["n"] >= 100:
                raise OSError("away")
            return record

        return send

    first, _ = flow(away=True)
    run = engine.start(first, on=on, checkpoint=tmp_path / "state", every="50 ms")
    wait_until(lambda: run.sample().steps["m"].retries == 1)
    made = run.checkpointer.made
    complete = made.complete
    wait_until(lambda: made.complete > complete + 1)
    run.abort()
    run.wait()
    second, sink = flow(away=False)
    engine.run(second, on=on, checkpoint=tmp_path / "state")
    assert [row["n"] for row in sink.records] == list(range(100, 300))


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("policy", ["stop", retry(times=1, backoff="1 ms", then="stop")])
def test_a_step_may_stop_the_run_with_the_reason_and_a_report(on, policy):
    def fails(record):
        if record["n"] == 70:
            raise ValueError("70 is cursed")
        return record

    flow = Flow("stop")
    flow.read("r", numbers(100)).map("m", fails, on_error=policy).write("w", io.Discard())
    with pytest.raises(
        RunError, match=r"step 'm' stopped the run, as its on_error says: ValueError: 70 is cursed"
    ) as raised:
        engine.run(flow, on=on, chunk=10)
    report = raised.value.report
    assert raised.value.step == "m"
    assert report.dead_letters == 0
    assert report.left + report.last.records_out["w"] == report.last.records_in


@pytest.mark.parametrize("on", RUNNERS)
def test_a_sink_and_a_source_may_stop_the_run_too(on, tmp_path):
    flow = Flow("sink")
    flow.read("r", numbers(100)).write("w", io.Failing("the disk is full"), on_error="stop")
    with pytest.raises(RunError, match=r"step 'w' stopped the run.*the disk is full"):
        engine.run(flow, on=on)
    (tmp_path / "bad.jsonl").write_text('{"n": 1}\n{"n": \n')
    flow = Flow("source")
    flow.read("r", io.JsonLines(tmp_path / "bad.jsonl", {"n": int}), on_error="stop").write("w", io.Discard())
    with pytest.raises(RunError, match="step 'r' stopped the run"):
        engine.run(flow, on=on)


def test_retry_in_lanes():
    tried = []

    def fails_first(record):
        tried.append(record["n"])
        if tried.count(record["n"]) == 1 and record["n"] % 100 == 7:
            raise OSError("again")
        return record

    flow, out = Flow("lanes"), io.Collect()
    flow.read("r", numbers()).map("m", fails_first, on_error=retry(times=1, backoff="1 ms")).write("w", out)
    report = engine.run(flow, lanes=2)
    assert [row["n"] for row in out.records] == list(range(1000))
    assert report.retries == 10


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda s: s.map("m", len, on_error="ignore"),
            r"step 'm': on_error is one of .* or retry\(...\); got 'ignore'",
        ),
        (lambda s: s.write("w", io.Discard(), on_error="dead leter"), "did you mean 'dead letter'"),
        (
            lambda s: s.flow.read("x", numbers(), on_error=retry()),
            "step 'x': on_error is one of 'dead letter', 'stop'; got",
        ),
        (lambda s: retry(times=0), "times must be a whole number of at least 1; got 0"),
        (lambda s: retry(backoff="1 min"), "backoff must be above 0 and at most longest"),
        (lambda s: retry(then="explode"), "retry: then is one of"),
    ],
)
def test_a_wrong_policy_is_told_while_building(make, said):
    with pytest.raises(FlowError, match=said):
        make(Flow("f").read("r", numbers()))
