"""The comparison with handwritten PySpark: results are equal, and the document has the keys that scripts rely on."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pyarrow as pa
import pytest

from headwater.errors import RunError
from headwater_bench.experiments import spark as bench
from headwater_bench.experiments import spark_flows, spark_native, spark_start
from headwater_bench.experiments.spark_cold import Bench
from headwater_bench.experiments.spark_outputs import differences, written
from headwater_bench.servers import kafka

pytest.importorskip("pyspark", reason="pyspark is not installed")


@pytest.mark.thorough
def test_programs_by_hand_write_what_ours_does(tmp_path):
    one = Bench("etl", tmp_path, 600, 56)
    for form in ("ours", "job"):
        assert one.seconds("text", form) > 0
    assert one.differences("text", ["job"]) == []
    assert written("etl", one.output("text", "ours")).num_rows == 600


@pytest.mark.thorough
@pytest.mark.skipif(bool(kafka.missing()), reason=kafka.missing())
def test_programs_by_hand_make_the_same_of_a_topic(tmp_path):
    one = Bench("etl", tmp_path, 1200, 56)
    with one.topic():
        for form in ("ours", "job"):
            assert one.seconds("kafka", form) > 0
    assert one.differences("kafka", ["job"]) == []
    assert written("etl", one.output("kafka", "ours")).num_rows == one.count_of("kafka") == 600


def test_cold_runs_can_be_from_a_topic_alone(monkeypatch):
    ran = []
    monkeypatch.setattr(kafka, "missing", lambda: "")
    monkeypatch.setattr(Bench, "topic", lambda bench: nullcontext())
    monkeypatch.setattr(Bench, "seconds", lambda bench, way, form: ran.append((bench.flow, way, form)) or 2.0)
    monkeypatch.setattr(Bench, "differences", lambda bench, way, forms: [])
    answer = bench.run(only=["kafka"], messages=600, sensors=56, repeats=1)
    assert [flow for flow in bench.FLOWS if flow in answer] == list(bench.FLOWS)
    assert {way for _, way, _ in ran} == {"kafka"}
    assert [form for flow, _, form in ran if flow == "etl"] == ["ours", "arrow", "bucket", "job", "bare"]
    assert answer["etl"]["kafka"]["rates"] == dict.fromkeys(("ours", "arrow", "bucket", "job"), 150)  # of half of them
    assert " kafka " in bench.table(answer)
    ran.clear()
    bench.run(only=["etl"], messages=600, sensors=56, repeats=1)
    assert {way for _, way, _ in ran} == {"text", "parquet"}


def test_where_there_is_no_broker_a_word_tells_that(monkeypatch):
    monkeypatch.setattr(kafka, "missing", lambda: "no jars of Kafka in nowhere")
    answer = bench.run(only=["kafka"], repeats=1)
    assert "not from Kafka: no jars of Kafka in nowhere" in bench.table(answer)
    assert not set(bench.FLOWS) & set(answer)


def test_a_program_that_breaks_says_why(tmp_path):
    one = Bench("pred", tmp_path, 10, 5)
    with pytest.raises(RunError, match=r"pred no-form .* ended with 1: .*no-form"):
        one.seconds("text", "no-form")


@pytest.mark.parametrize(
    "flow", [pytest.param(flow, marks=[] if flow == "stats" else [pytest.mark.thorough]) for flow in bench.FLOWS]
)
def test_flows_say_what_handwritten_programs_say(spark, tmp_path, flow):
    assert spark_flows.Bench(spark, tmp_path, 600, 56).differences(flow, ["arrow", "bucket"]) == []


@pytest.mark.thorough
def test_a_flow_is_told_over_the_best_of_five_programs(spark, tmp_path, monkeypatch):
    took = {"ours": 2.0, "native": 9.0, "arrow": 5.0, "transform": 8.0, "bucket": 4.0, "job": 3.0, "bare": 1.0}
    runs = []

    def seconds(bench, way, form):
        runs.append(form)
        return took[form] * (2 if way == "parquet" and form == "job" else 1)

    monkeypatch.setattr(Bench, "seconds", seconds)
    monkeypatch.setattr(Bench, "differences", lambda bench, way, forms: ["other"] if way == "text" else [])
    answer = bench.run(only=["pred", "warm"], messages=600, sensors=56, repeats=2, output=tmp_path)
    told = answer["pred"]
    assert told["over_handwritten"] == told["text"]["over_handwritten"] == 1.5
    assert (told["text"]["best"], told["parquet"]["best"], told["parquet"]["over_handwritten"]) == ("job", "bucket", 2)
    assert runs[7:11] == ["ours", "job", "bucket", "bare"]  # who have a second turn
    assert told["text"]["rates"]["ours"] == 300
    assert told["text"]["bare_s"] == 1
    assert told["outputs_equal"] is False
    assert told["warm"]["differences"] == []
    assert len((tmp_path / "spark.csv").read_text().splitlines()) == 1 + 6 + 6 + 4
    assert "1.50 (job)" in bench.table(answer)


@pytest.mark.thorough
def test_steps_with_state_by_key_say_the_same_on_all_interfaces(spark, monkeypatch):
    monkeypatch.setattr(bench, "KEYED", {40: (700, 3)})
    monkeypatch.setattr("headwater_bench.experiments.spark_keyed.STEPS", ("interpolation", "sliding regression"))
    answer = bench.run(only=["keyed"], repeats=1)
    assert set(answer["keyed"]) == {"interpolation", "sliding regression"}
    for by_keys in answer["keyed"].values():
        assert by_keys["40"]["differences"] == []
        assert by_keys["40"]["over_transform_with_state"] > 0
    assert "sliding regression" in bench.table(answer)


@pytest.mark.thorough
def test_windows_say_the_same_in_both_meanings(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_native.Bench, "rate", lambda bench, meaning: len(meaning) * 100.0)
    monkeypatch.setattr(bench, "NATIVE", (600, 600))
    answer = bench.run(only=["native"], repeats=1)
    assert answer["native"]["differences"] == []
    assert answer["native"]["spark_over_headwater"] == round(5 / 9, 2)
    assert "results are equal" in bench.table(answer)


@pytest.mark.thorough
def test_latency_is_told_beside_the_floor(spark, monkeypatch):
    monkeypatch.setattr(bench, "RATES_HZ", (200,))
    monkeypatch.setattr(bench, "LATENCY_S", (4.0, 4.0))
    answer = bench.run(only=["latency"])
    assert answer["empty_ms"] > 0
    assert answer["latency_ms"]["200"] > 0
    assert answer["batch_ms_1k"] is None  # which nobody has asked for
    assert "record p99" in bench.table(answer)


def test_a_part_that_is_not_there_is_refused():
    with pytest.raises(RunError, match=r"there is no part 'elt'.*did you mean 'etl'"):
        bench.run(only=["elt"])
    with pytest.raises(RunError, match=r"there is no way 'texts'.*did you mean 'text'"):
        bench.run(only=["etl"], ways=["texts"])


def test_a_comparison_sees_what_differs():
    def differ(flow, one, other):
        return differences(flow, pa.Table.from_pylist(one), pa.Table.from_pylist(other))

    text = '{"e":[{"v":"8.0","n":"light"},{"sv":"a","n":"source"}],"bt":"5"}'
    turned = '{"bt":"5","e":[{"sv":"a","n":"source"},{"v":"8","n":"light"}]}'
    assert differ("etl", [{"msg": 1, "senml": text}], [{"msg": 1, "senml": turned}]) == []
    for old, new in (('"8.0"', '"8.1"'), ('"a"', '"b"'), ('"5"', '"6"'), ('"light"', '"dust"')):
        assert len(differ("etl", [{"msg": 1, "senml": text}], [{"msg": 1, "senml": text.replace(old, new)}])) == 1
    assert differ("etl", [], []) == ["we have no results at all"]
    one = {"msg": 1, "source": "a", "obs": "dust", "kind": "SLR", "result": "1.0#2.0#"}
    assert differ("stats", [one], [{**one, "result": "1.00001#2.0#"}]) == []
    assert len(differ("stats", [one], [{**one, "result": "1.0#"}])) == 1
    assert len(differ("stats", [one], [{**one, "kind": "SOM"}])) == 1
    assert len(differ("stats", [one], [one, one])) == 1
    found = {"msg": 1, "source": "a", "kind": "DTC", "result": 0.0, "label": "BAD"}
    error = {"msg": 1, "source": "a", "kind": "MLR", "result": 0.5, "label": ""}
    assert differ("pred", [found, error], [{**error, "result": 0.9}, found]) == []
    assert len(differ("pred", [found, error], [{**found, "label": "GOOD"}, error])) == 1
    assert len(differ("pred", [found, error], [found, {**error, "result": -0.5}])) == 1


def test_an_error_before_the_first_average_is_no_number_however_it_is_written(tmp_path):
    rows = '{"msg":1,"source":"a","kind":"MLR","result":%s,"label":""}\n'
    for name, first in (("ours", "null"), ("theirs", '"Infinity"')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.json").write_text(rows % first + (rows % "0.5").replace("1,", "2,", 1))
    ours, theirs = (written("pred", tmp_path / name) for name in ("ours", "theirs"))
    assert theirs["result"].to_pylist() == [None, 0.5]
    assert differences("pred", ours, theirs) == []


def test_a_program_is_timed_to_its_first_output(tmp_path):
    program = (
        "import pathlib, sys; out = pathlib.Path(sys.argv[1]); out.mkdir(); (out / 'part-0').write_text('a\\nb\\n')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    assert spark_start._seconds(command, tmp_path / "out") > 0
    with pytest.raises(RunError, match="had no output"):  # the program breaks, since its folder is there
        spark_start._seconds(command, tmp_path / "other")


def test_what_is_written_to_the_side_is_no_output_yet(tmp_path):
    (tmp_path / "_temporary").write_text("a\nb\n")
    (tmp_path / "part-0").write_text("header\n")
    assert not spark_start._has_output(tmp_path)
    (tmp_path / "part-0").write_text("header\na\n")
    assert spark_start._has_output(tmp_path)
