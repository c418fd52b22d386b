"""The benchmark's own expected outputs, where its files are present."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from headwater import engine
from headwater.io import Collect
from headwater_bench.riot import samples
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats

FOLDER = samples.folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the benchmark's files are not here")


def sample() -> MessageFile:
    return MessageFile(FOLDER / "raw" / "SYS_sample_data_senml.csv")


def golden(name: str) -> list[dict[str, str]]:
    with (FOLDER / "golden" / name).open() as lines:
        return list(csv.DictReader(lines))


def close(mine: float, theirs: str) -> bool:
    return mine == pytest.approx(float(theirs), rel=1e-6)


def test_etl_rows_and_messages_equal_the_golden_ones():
    rows, written = Collect(), Collect()
    report = engine.run(etl(sample(), insert=rows, publish=written))
    assert report.dead_letters == 0
    mine = sorted(rows.records, key=lambda row: row["msg"])
    theirs = (FOLDER / "golden" / "etl_annotated_csv.csv").read_text().splitlines()
    assert len(mine) == len(theirs) == 1000
    for row, line in zip(mine, theirs, strict=True):
        for value, expected in zip(list(row.values())[1:], line.split(","), strict=True):
            assert close(value, expected) if isinstance(value, float) else str(value) == expected
    lines = (FOLDER / "golden" / "etl_senml_out_first50.jsonl").read_text().splitlines()
    messages = sorted(written.records, key=lambda record: record["msg"])
    for record, line in zip(messages, lines, strict=False):
        assert json.loads(record["senml"]) == json.loads(line)


@pytest.fixture(scope="module", params=["source", "longitude"])
def statistics(request):
    results, smoothed = Collect(), Collect()
    engine.run(stats(sample(), key=request.param, publish=results, smoothed=smoothed))
    by_kind: dict[str, dict] = defaultdict(dict)
    for record in results.records:
        by_kind[record["kind"]][record["msg"], record["obs"]] = record["result"]
    return request.param, by_kind, smoothed.records


OBS = ["temperature", "humidity", "light", "dust", "airquality_raw"]


def test_kalman_estimates_equal_the_golden_ones(statistics):
    key, _, smoothed = statistics
    mine = {(record["msg"], record["obs"]): record for record in smoothed}
    for row in golden(f"stats_kalman_by_{key}.csv"):
        record = mine[int(row["row"]), row["obs"]]
        assert record[key] == row["key"]
        assert close(record["value"], row["kalman_f32"])


def test_distinct_counts_equal_the_golden_ones(statistics):
    key, by_kind, _ = statistics
    for row in golden(f"stats_dac_{key}_k5.csv"):
        assert {by_kind["DA"][int(row["row"]), obs] for obs in OBS} == {row["estimate"]}


def test_regressions_or_moments_equal_the_golden_ones(statistics):
    key, by_kind, _ = statistics
    if key == "longitude":
        assert len(by_kind["SLR"]) == 1510
        with (FOLDER / "golden" / "stats_slr_by_longitude.csv").open() as lines:
            for row, _, obs, _, predictions in list(csv.reader(lines))[1:]:
                mine = by_kind["SLR"][int(row), obs].strip("#").split("#")
                assert len(mine) == 10
                np.testing.assert_allclose(
                    [float(x) for x in mine], [float(x) for x in predictions.split("#")], rtol=1e-6
                )
    else:
        for row in golden("stats_som_by_source.csv"):
            assert close(float(by_kind["SOM"][int(row["row"]), row["obs"]]), row["som_float32"])


def test_distinct_counts_with_ten_bits_equal_the_golden_ones():
    from headwater.data.column import Text
    from headwater.steps.distinct import distinct_count

    rows = golden("pred.csv")
    sources, ranks = Text.of([row["source"] for row in rows]), np.zeros((1, 1025), np.int64)
    out = np.empty(len(rows), np.int64)
    distinct_count(np.zeros(len(rows), np.int64), sources.data, sources.offsets, ranks, out)
    assert out.tolist() == [int(row["estimate"]) for row in golden("stats_dac_source_k10.csv")]


def test_classes_and_forecasts_equal_the_golden_ones():
    results, forecasts = Collect(), Collect()
    engine.run(pred(sample(), publish=results, forecasts=forecasts))
    classes = {record["msg"]: record for record in results.records if record["kind"] == "DTC"}
    lines = {record["msg"]: record for record in forecasts.records}
    for row in golden("pred.csv"):
        number = int(row["row"])
        assert classes[number]["source"] == row["source"]
        assert classes[number]["result"] == float(row["dtc_index"])
        assert classes[number]["label"] == row["dtc_label"]
        assert lines[number]["measured"] == float(row["airquality"])
        assert close(lines[number]["predicted"], row["mlr_pred_float32"])
    assert Counter(r["label"] for r in classes.values()) == {"BAD": 431, "GOOD": 306, "VERYGOOD": 263}


def test_averages_come_in_the_pattern_of_the_endless_loop():
    from headwater_bench.riot.sources import repeated

    texts = samples.messages(CITY)[1:]  # the original drops the first line
    report = engine.run(pred(repeated(texts, 1e9, count=999 * 5), instances={"parse": 1}))
    assert report.last.steps["average"].records_out == 0 + 19 + 173 + 19 + 788
