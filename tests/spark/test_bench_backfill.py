"""History on Spark beside two programs by hand: results are equal, a stream goes on as if it had streamed it all."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from headwater_bench.experiments import backfill as bench

ROWS = 24_000


def test_what_lasts_less_than_a_look_has_its_memory_too(spark):
    java = bench._java()
    with bench.Memory(java) as seen:
        spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()
    assert min(seen.python_mb, seen.java_mb, seen.driver_mb) > 0


@pytest.mark.thorough
def test_history_is_told_over_the_better_of_two_programs(spark, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_FEW", ROWS)
    answer = bench.run(rows=ROWS, repeats=1, output=tmp_path)
    assert answer["handed_on"] == {"engine": True, "spark": True}
    assert answer["differences"] == []
    assert answer["rate"] == answer["rates"]["ours"] > 0
    assert answer["handwritten_rate"] == max(answer["rates"][form] for form in bench.FORMS)
    assert answer["over_handwritten"] > 0
    assert min(answer[f"{who}_mb"] for who in ("python", "java", "driver")) > 0
    assert answer["python_mb_of_a_quarter"] > 0
    assert (tmp_path / "backfill.csv").read_text().count("\n") == 1 + 1 + len(bench.FORMS)
    assert f"ours over {answer['better']}: {answer['over_handwritten']:.2f}" in bench.table(answer)


def test_a_stream_that_goes_on_otherwise_is_told():
    told = {"handed_on": {"engine": True, "spark": False}, "differences": ["arrow: other values"]}
    answer = {
        **told,
        "rows": 10,
        "sensors": 2,
        "rate": 5,
        "handwritten_rate": 4,
        "over_handwritten": 1.25,
        "better": "arrow",
        "rates": {"ours": 5, "arrow": 4, "pandas": 3},
        "python_mb": 1,
        "python_mb_of_a_quarter": 1,
        "java_mb": 2,
        "driver_mb": 3,
        "repeats": 1,
    }
    shown = bench.table(answer)
    assert "engine equal, spark NOT EQUAL" in shown
    assert "arrow: other values" in shown
