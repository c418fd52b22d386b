"""The comparison with handwritten PySpark: results are equal, and the document has the keys that scripts rely on."""

from __future__ import annotations

import sys

import pytest

from headwater.errors import RunError
from headwater_bench.experiments import spark as bench
from headwater_bench.experiments import spark_native, spark_start
from headwater_bench.experiments.spark_flows import Bench, _compare_etl, _compare_pred, _compare_stats

pytest.importorskip("pyspark", reason="pyspark is not installed")


def test_flows_are_timed_beside_handwritten_programs_that_say_the_same(spark, tmp_path):
    answer = bench.run(only=["etl"], messages=600, sensors=56, repeats=1, output=tmp_path)
    told = answer["etl"]
    assert told["differences"] == []
    assert told["outputs_equal"] is True
    assert told["handwritten_rate"] == max(told["rates"]["native"], told["rates"]["arrow"])
    assert told["over_handwritten"] == pytest.approx(told["rate"] / told["handwritten_rate"], rel=0.05)
    assert len((tmp_path / "spark.csv").read_text().splitlines()) == 1 + 3
    assert "over better" in bench.table(answer)


@pytest.mark.parametrize("flow", ["stats", "pred"])
def test_other_flows_say_what_handwritten_programs_say(spark, tmp_path, flow):
    assert Bench(spark, tmp_path, 600, 56).differences(flow, ["arrow"]) == []


def test_steps_with_state_by_key_say_the_same_on_all_interfaces(spark, monkeypatch):
    monkeypatch.setattr(bench, "KEYED", {40: (700, 3)})
    monkeypatch.setattr("headwater_bench.experiments.spark_keyed.STEPS", ("interpolation", "sliding regression"))
    answer = bench.run(only=["keyed"], repeats=1)
    assert set(answer["keyed"]) == {"interpolation", "sliding regression"}
    for by_keys in answer["keyed"].values():
        assert by_keys["40"]["differences"] == []
        assert by_keys["40"]["over_transform_with_state"] > 0
    assert "sliding regression" in bench.table(answer)


def test_windows_say_the_same_in_both_meanings(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_native.Bench, "rate", lambda bench, meaning: len(meaning) * 100.0)
    monkeypatch.setattr(bench, "NATIVE", (600, 600))
    answer = bench.run(only=["native"], repeats=1)
    assert answer["native"]["differences"] == []
    assert answer["native"]["spark_over_headwater"] == round(5 / 9, 2)
    assert "results are equal" in bench.table(answer)


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


def test_a_comparison_sees_what_differs():
    ours = [{"msg": 1, "senml": '{"e":[{"v":"8.0","n":"light"}],"bt":"5"}'}]
    theirs = [{"msg": 1, "senml": '{"e":[{"v":"8.1","n":"light"}],"bt":"5"}', "light": 8.0}]
    assert len(_compare_etl(ours, [{"msg": 1, "light": 8.0}], theirs)) == 1
    assert len(_compare_etl(ours, [{"msg": 1, "light": 7.0}], theirs)) == 2
    assert _compare_etl([], [], []) == ["we have no results at all"]
    one = {"msg": 1, "source": "a", "obs": "dust", "kind": "SLR", "result": "1.0#2.0#"}
    assert _compare_stats([one], [], [{**one, "result": "1.00001#2.0#"}]) == []
    assert len(_compare_stats([one], [], [{**one, "result": "1.0#"}])) == 1
    assert len(_compare_stats([one], [], [])) == 1
    found = {"msg": 1, "kind": "DTC", "label": "BAD", "predicted": 3.0}
    assert _compare_pred([found], [{"msg": 1, "predicted": 3.0}], [found]) == []
    assert len(_compare_pred([found], [{"msg": 1, "predicted": 4.0}], [{**found, "label": "GOOD"}])) == 2


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
