"""The benchmark's flows give the same files on both runners, and the expected ones where they are known."""

from __future__ import annotations

import csv
import json
from itertools import groupby

import pytest

from headwater import engine
from headwater import spark as on_spark
from headwater.cli.locate import find_flow
from headwater.cli.rewire import rewire
from headwater.flow.ranges import Sizes
from headwater_bench.riot import samples
from headwater_bench.riot.generate import messages, stream

FOLDER = samples.folder()
FLOWS = ("etl", "stats", "pred")
SMALL = Sizes(parallel=2, batch_bytes=2**17, piece_bytes=2**15)


def ran(name, source, folder, run, **options):
    report = run(rewire(find_flow(f"riot:{name}"), inputs=[str(source)], output=folder), **options)
    return report, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", FLOWS)
def test_output_files_are_the_engines_to_the_byte(name, tmp_path):
    source = tmp_path / "messages.jsonl"
    lines = messages(stream("CITY", seed=5), 0, 1500).bytes_list()
    lines[700:700] = [b"not a message", b'{"e":[]}']
    source.write_bytes(b"\n".join(lines) + b"\n")
    theirs, expected = ran(name, source, tmp_path / "engine", engine.run)
    report, files = ran(name, source, tmp_path / "spark", on_spark.run, sizes=SMALL, buckets=3)
    assert report.extra["spark"]["batches"] > 1
    assert report.dead_letters == theirs.dead_letters > 0
    for each in (expected, files):
        if name == "pred":
            each["publish.csv"] = _without_errors(each["publish.csv"])
        if name == "stats":
            each["publish.csv"] = _observations_in_order(each["publish.csv"])
    assert files == expected


def _without_errors(file):
    """Leave out the error itself, of which there is one for each message: the latest average of any sensor measures it.

    Which that is depends on how forecasts and averages interleave, on the engine from run to run.
    """
    lines = [line.split(b",") for line in file.splitlines()]
    return [[*line[:3], *line[4:]] if b"MLR" in line else line for line in lines]


def _observations_in_order(file):
    """Order the observations of one message and kind, which the engine's three writers take as they come."""
    lines = [line.split(b",") for line in file.splitlines()]
    groups = groupby(lines, key=lambda line: (line[0], line[3]))
    return [(message, sorted(group)) for message, group in groups]


@pytest.mark.thorough  # that they are the engine's is shown above, and that the engine's are golden in tests/riot
@pytest.mark.usefixtures("spark")
@pytest.mark.skipif(FOLDER is None, reason="the benchmark's files are not here")
@pytest.mark.parametrize("name", FLOWS)
def test_golden_files_hold(name, tmp_path):
    ran(name, FOLDER / "raw" / "SYS_sample_data_senml.csv", tmp_path, on_spark.run)
    {"etl": _etl_is_golden, "stats": _stats_are_golden, "pred": _pred_is_golden}[name](tmp_path)


def rows(path):
    with path.open() as lines:
        return list(csv.DictReader(lines))


def close(mine, theirs):
    return float(mine) == pytest.approx(float(theirs), rel=1e-6)


def _etl_is_golden(folder):
    mine = [list(row.values())[1:] for row in rows(folder / "insert.csv")]
    theirs = [line.split(",") for line in (FOLDER / "golden" / "etl_annotated_csv.csv").read_text().splitlines()]
    assert len(mine) == len(theirs) == 1000
    for row, expected in zip(mine, theirs, strict=True):
        for value, other in zip(row, expected, strict=True):
            assert value == other or close(value, other)
    golden = (FOLDER / "golden" / "etl_senml_out_first50.jsonl").read_text().splitlines()
    for line, expected in zip((folder / "publish.jsonl").read_text().splitlines(), golden, strict=False):
        assert json.loads(line) == json.loads(expected)


def _stats_are_golden(folder):
    kalman = {(row["msg"], row["obs"]): row["value"] for row in rows(folder / "kalman.csv")}
    for row in rows(FOLDER / "golden" / "stats_kalman_by_source.csv"):
        assert close(kalman[row["row"], row["obs"]], row["kalman_f32"])
    results = {(row["kind"], row["msg"], row["obs"]): row["result"] for row in rows(folder / "publish.csv")}
    for row in rows(FOLDER / "golden" / "stats_som_by_source.csv"):
        assert close(results["SOM", row["row"], row["obs"]], row["som_float32"])
    for row in rows(FOLDER / "golden" / "stats_dac_source_k5.csv"):
        assert results["DA", row["row"], "temperature"] == row["estimate"]


def _pred_is_golden(folder):
    classes = {row["msg"]: row for row in rows(folder / "publish.csv") if row["kind"] == "DTC"}
    forecasts = {row["msg"]: row for row in rows(folder / "mlr.csv")}
    for row in rows(FOLDER / "golden" / "pred.csv"):
        assert classes[row["row"]]["label"] == row["dtc_label"]
        assert close(forecasts[row["row"]]["predicted"], row["mlr_pred_float32"])
