"""Sources and sinks of another package work on both runners by what they declare, and without declaring anything."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both import SMALL

from headwater import Flow, col, engine, io
from headwater import spark as on_spark
from headwater.errors import RunError
from headwater.spark.explain import explained, explanation_text

CARDS = 1000


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The module, in a folder that is neither the product's nor installed."""
    shutil.copy(Path(__file__).with_name("outside.py"), tmp_path / "cards_and_pages.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("cards_and_pages")
    del sys.modules["cards_and_pages"]


def written_cards(outside, path, count=CARDS):
    np.array([(n, n / 4) for n in range(count)], outside.CARD).tofile(path)
    return outside.Cards(path)


def copying(source, sink):
    flow = Flow("outside")
    flow.read("in", source).filter("even", col.n % 2 == 0).write("out", sink)
    return flow


def rows_in(folder):
    return [(row["n"], row["level"]) for page in folder.glob("page-*") for row in json.loads(page.read_text())]


EVEN = [(n, n / 4) for n in range(0, CARDS, 2)]


def test_declared_capabilities_serve_both_runners(spark, tmp_path, outside):
    source = written_cards(outside, tmp_path / "cards")
    engine.run(copying(source, outside.Pages(tmp_path / "engine")))
    flow = copying(source, outside.Pages(tmp_path / "spark"))
    report = on_spark.run(flow, sizes=SMALL)
    assert sorted(rows_in(tmp_path / "engine")) == sorted(rows_in(tmp_path / "spark")) == EVEN
    assert report.last.records_in == CARDS
    assert len(list((tmp_path / "spark").glob("page-*"))) > 3  # micro-batches
    shown = explanation_text(explained(flow))
    assert "read in parallel, by ranges" in shown
    assert "written by the driver, exactly once" in shown


def test_a_run_on_spark_goes_on_where_the_last_one_was_stopped(spark, tmp_path, outside):
    source, pages = written_cards(outside, tmp_path / "cards"), outside.Pages(tmp_path / "pages")
    kept = {"checkpoint": tmp_path / "kept", "sizes": SMALL}
    first = on_spark.start(copying(source, pages), **kept)
    while first.wait(0.02) is None:
        if first.sample().records_in:
            first.stop()
    read = first.wait().last.records_in
    assert 0 < read < CARDS
    second = on_spark.run(copying(source, pages), **kept)
    assert second.last.records_in == CARDS - read
    assert sorted(rows_in(tmp_path / "pages")) == EVEN
    with pytest.raises(
        RunError, match=r"source 'in' is another: it read Cards .*cards then, and is given Cards .*more now"
    ):
        on_spark.run(copying(written_cards(outside, tmp_path / "more"), pages), **kept)


def test_what_declares_nothing_works_on_both_runners(spark, tmp_path, outside):
    engine.run(copying(outside.Hundred(), outside.Notes(tmp_path / "engine.txt")))
    flow = copying(outside.Hundred(), outside.Notes(tmp_path / "spark.txt"))
    on_spark.run(flow)
    expected = [f"{n} {n / 2}" for n in range(0, 100, 2)]
    assert (tmp_path / "engine.txt").read_text().splitlines() == expected
    assert (tmp_path / "spark.txt").read_text().splitlines() == expected
    shown = explanation_text(explained(flow))
    assert "read through a log, by the driver" in shown
    assert "written by the driver, at least once" in shown


def test_another_package_can_have_spark_read_and_write_by_means_of_its_own(tmp_path, outside):
    """What is registered for a type is asked before what it declares."""
    from headwater.spark.native import reads, writes

    slow = type("Slow", (outside.Cards,), {})

    class Written:
        way, guarantee = "written by three monks", "at least once"

    class Read:
        way, offsets = "aloud", 0

    def made(kind) -> Any:
        return lambda endpoint: kind()

    reads.register(slow, made(Read))
    writes.register(outside.Pages, made(Written))
    shown = explanation_text(explained(copying(slow(tmp_path / "cards"), outside.Pages(tmp_path))))
    assert "read aloud" in shown
    assert "written by three monks, at least once" in shown
    assert "by ranges" in explanation_text(explained(copying(outside.Cards(tmp_path / "cards"), io.Discard())))
