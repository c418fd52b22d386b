"""Tables, blobs, archives, charts, and the flow that uses them."""

from __future__ import annotations

import io
import sys
import types
import xml.etree.ElementTree as ET
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import engine
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.operators import build
from headwater_bench.riot.blobs import BlobStore, PutBlobs, zip_stored, zipped
from headwater_bench.riot.chart import line_chart
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.sources import repeated
from headwater_bench.riot.table import SqliteTable
from headwater_bench.riot.viz import stats_viz

ROWS = Schema.of({"timestamp": int, "source": str, "x": float})


def rows(count: int) -> Batch:
    numbers = np.arange(count)
    return Batch.of({"timestamp": numbers // 3, "source": [f"s{i % 3}" for i in range(count)], "x": numbers / 2}, ROWS)


def test_rows_are_inserted_in_groups_and_the_rest_at_the_end(tmp_path):
    table = SqliteTable(tmp_path / "t.db", "city", id="source", group=4)
    writer = table.open(ROWS)
    writer.write(rows(9))
    assert len(table.scan(0, 100)) == 8
    writer.close()
    assert len(table.scan(0, 100)) == 9


def test_a_table_is_asked_by_id_and_by_range_of_time(tmp_path):
    table = SqliteTable(tmp_path / "t.db", "city", id="source")
    writer = table.open(ROWS)
    writer.write(rows(12))
    writer.close()
    assert [row["x"] for row in table.look_up("s1")] == [0.5, 2.0, 3.5, 5.0]
    assert table.look_up("none") == []
    assert [row["x"] for row in table.scan(1, 3)] == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_a_row_that_comes_again_replaces_itself(tmp_path):
    table = SqliteTable(tmp_path / "t.db", "city", id="source")
    for _ in range(2):
        writer = table.open(ROWS)
        writer.write(rows(5))
        writer.close()
    assert len(table.scan(0, 100)) == 5


def test_etl_fills_a_table(tmp_path):
    table = SqliteTable(tmp_path / "t.db", "city", id="source")
    source = repeated(messages(stream("CITY"), 0, 150), 1e9, count=150)
    engine.run(etl(source, insert=table))
    found = table.scan(0, 2**62)
    keys = {(row["timestamp"], row["source"]) for row in found}
    assert len(found) == len(keys) > 100
    assert set(found[0]) == {"msg", "timestamp", "source", *CITY.meta, *CITY.numbers, "location", "type"}


def test_a_table_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(InputError, match="letters, digits"):
        SqliteTable(tmp_path / "t.db", "drop table", id="source")
    with pytest.raises(InputError, match="cannot"):
        SqliteTable(tmp_path / "no" / "t.db", "city", id="source").open(ROWS)
    with pytest.raises(InputError, match="cannot read table 'city'"):
        SqliteTable(tmp_path / "t.db", "city", id="source").look_up("a")


def test_blobs_come_back_and_names_stay_inside_the_store(tmp_path):
    store = BlobStore(tmp_path / "blobs")
    store.put("../../out.bin", b"abc")
    assert (tmp_path / "blobs" / "out.bin").read_bytes() == b"abc"
    assert store.get("out.bin") == b"abc"
    with pytest.raises(InputError, match="cannot get 'gone' from"):
        store.get("gone")


def test_a_url_is_handed_to_fsspec_where_it_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match="memory://b needs fsspec"):
        BlobStore("memory://b")
    kept: dict[str, bytes] = {}
    files = types.SimpleNamespace(pipe_file=kept.__setitem__, cat_file=kept.__getitem__)
    fake = types.SimpleNamespace(core=types.SimpleNamespace(url_to_fs=lambda url: (files, url.split("://")[1])))
    monkeypatch.setitem(sys.modules, "fsspec", fake)
    store = BlobStore("memory://b")
    store.put("a", b"1")
    assert kept == {"b/a": b"1"}
    assert store.get("a") == b"1"


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,5}\Z"), st.binary(max_size=50), max_size=5))
def test_an_archive_holds_the_files_it_was_made_of(files):
    with zipfile.ZipFile(io.BytesIO(zipped(files))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
    assert zipped(files) == zipped(files)


def test_files_of_a_store_are_zipped_by_name(tmp_path):
    store = BlobStore(tmp_path)
    store.put("a", b"1")
    store.put("b", b"2")
    with zipfile.ZipFile(io.BytesIO(zip_stored(store, ["a", "b"]))) as archive:
        assert archive.read("b") == b"2"


@given(
    st.dictionaries(st.text(max_size=4), st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1))
)
def test_a_chart_has_a_line_for_each_series_inside_its_frame(series):
    clean = {name.translate(dict.fromkeys(range(32))): line for name, line in series.items()}
    clean = {name: line for name, line in clean.items() if name.isprintable()}
    picture = ET.fromstring(line_chart("a < b", clean, "x & y"))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(clean)
    for line in lines:
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 59 <= x <= 741
            assert 59 <= y <= 541


def charts_in(folder) -> list[str]:
    found = []
    for path in folder.glob("charts-*.zip"):
        with zipfile.ZipFile(path) as archive:
            found += archive.namelist()
    return found


def test_stats_viz_stores_charts_of_all_results(tmp_path):
    source = repeated(messages(stream("CITY"), 0, 5), 1e9, count=200)
    flow = stats_viz(source, upload=PutBlobs(BlobStore(tmp_path)), results=20, charts=10)
    report = engine.run(flow)
    steps = report.last.steps
    assert steps["average"].records_out == 100  # ten values of each of 25 kinds make one mean
    assert steps["slr"].records_out == 5 * 5 * 30
    assert steps["dac"].records_out == 200
    assert steps["viz"].records_in == 100 + 750 + 200
    charts = charts_in(tmp_path)
    assert len(charts) == len(set(charts)) > 52  # at least one chart for each 20 results
    assert report.dead_letters == 0


def test_a_plot_moved_in_the_middle_makes_the_same_archives():
    flow = stats_viz(repeated(messages(stream("CITY"), 0, 5), 1e9, count=60), results=5, charts=4)
    parsed = build(flow.steps["parse"]).process(flow.steps["messages"].kind.source.open(print).read(60, 5.0), 0)
    results = build(flow.steps["dac"]).process(parsed[1][1], 0)
    stay, first, second = (build(flow.steps["viz"]) for _ in range(3))
    whole = stay.process(results, 2).rows()
    parts = [first.process(results.slice(0, 33), 2)]
    second.restore(first.snapshot())
    parts.append(second.process(results.slice(33, 60), 2))
    assert [row for part in parts for row in part.rows()] == whole
