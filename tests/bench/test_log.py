"""The experiment on the log: what it appends is read back."""

import csv

from headwater_bench.experiments import log


def test_all_that_was_appended_is_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = log.run(quick=True, output=tmp_path / "out")
    assert answer["read_back"] is True
    assert (answer["records"], answer["fsync_every_ms"]) == (200_000, 10)
    assert answer["records_per_s"] > 0
    with (tmp_path / "out" / "log.csv").open() as lines:
        assert [int(row["records"]) for row in csv.DictReader(lines)] == [200_000]
    assert "all equal" in log.table(answer)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
