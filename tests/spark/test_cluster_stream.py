"""A stream of the experiment on a cluster: it takes laps as they are let go of, and ends with all of them written."""

import pyarrow.dataset
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from headwater.errors import RunError
from headwater_bench.experiments import cluster as bench
from headwater_bench.experiments.cluster_stream import Stream

LAP = 400


def test_a_stream_takes_laps_one_after_the_other(tmp_path):
    ends = bench._write(tmp_path / "messages", LAP, 2)
    with Stream(
        "local[1]", "stats", tmp_path / "messages", tmp_path / "stream", buckets=1, batch_bytes=ends[0] // 2 + 200
    ) as stream:
        for lap, end in enumerate(ends, start=1):
            marks = stream.lap(end, lap * LAP)
            assert len(marks) == 2
            assert marks[-1].read == lap * LAP
            assert marks[-1].used_s["driver's Java"] > 0
        took = stream.finish()
        assert len(took) == 4
        assert all(0 < each["addBatch"] <= each["triggerExecution"] for each in took)
    found = pyarrow.dataset.dataset(stream.table, format="parquet").to_table(columns=["msg"])
    assert set(found["msg"].to_pylist()) == set(range(1, 2 * LAP + 1))


def test_a_stream_that_breaks_says_why(tmp_path):
    with (
        Stream("local[1]", "stats", tmp_path / "none", tmp_path / "stream", buckets=1, batch_bytes=1) as broken,
        pytest.raises(RunError, match=r"stats on local\[1\] ended with status 1: (.|\n)*none"),
    ):
        broken.lap(1, 1)
