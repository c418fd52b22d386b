"""How the experiment about plans that are run measures: records that fall due, their ages, and what came near."""

import time

import numpy as np
import pytest

from headwater import engine
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater_bench.experiments.promise_vs_run import summed, table
from headwater_bench.promised.cases import application
from headwater_bench.promised.ends import BEGAN, END, Aged, Due, ages_ms

NUMBERS = Schema.of({"n": int})


def numbered(numbers, created_ns):
    return {"n": numbers}


def test_records_fall_due_by_the_clock_once_a_file_says_from_when_on(tmp_path):
    reader = Due(tmp_path, 10.0, NUMBERS, numbered).open(pytest.fail)
    assert reader.read(100, 0.0).length == 0  # nobody has said when it begins
    (tmp_path / END).write_text("2.0")
    began_s = time.time() - 1000.0
    (tmp_path / BEGAN).write_text(repr(began_s))
    first = reader.read(15, 0.0)
    assert first["n"].tolist() == list(range(15))
    assert first.stamps[10, 0] == pytest.approx((began_s + 1.0) * 1e9, abs=1e6)
    again = Due(tmp_path, 10.0, NUMBERS, numbered).open(pytest.fail, reader.position)
    assert again.read(100, 0.0)["n"].tolist() == list(range(15, 20))
    assert again.read(100, 0.0) is None


def test_ages_count_from_creation_or_from_when_a_window_could_close(tmp_path):
    now_ns = time.time_ns()
    batch = Batch.of({"n": [1, 2]}, NUMBERS, created_ns=np.array([now_ns - 5 * 10**9, now_ns]))
    plain = Aged(tmp_path / "plain").open(NUMBERS)
    plain.write(batch)
    plain.close()
    assert ages_ms(tmp_path / "plain", 0.0).min() >= 0.0
    assert ages_ms(tmp_path / "plain", 0.0).max() >= 5000.0
    assert len(ages_ms(tmp_path / "plain", now_ns / 1e9 - 1.0)) == 1
    assert len(ages_ms(tmp_path / "nothing", 0.0)) == 0
    windows = Aged(tmp_path / "windows", window_ns=10**9, lateness_ns=10**9).open(NUMBERS)
    windows.write(batch)
    windows.close()
    waited_ms = ages_ms(tmp_path / "plain", 0.0).max() - ages_ms(tmp_path / "windows", 0.0).max()
    assert 1000.0 < waited_ms <= 2100.0  # up to the end of the second, and what may be late


def test_the_application_brings_records_of_every_source_to_its_sinks(tmp_path):
    (tmp_path / END).write_text("0.5")
    (tmp_path / BEGAN).write_text("0.0")
    flow = application(tmp_path)
    report = engine.run(flow)
    assert report.dead_letters == 0
    for name, step in flow.steps.items():
        if step.is_sink:
            assert len(ages_ms(tmp_path / f"{name}.ages", 0.0)) == report.last.records_out[name] > 0


def test_what_came_near_is_counted_for_both_and_for_each():
    paths = {
        "a → b": {"measured_ms": 100.0, "account_ms": 120.0, "simulated_ms": 80.0},
        "a → c": {"measured_ms": 100.0, "account_ms": 130.0, "simulated_ms": 110.0},
    }
    assert summed(paths) == {"within": 0.5, "within_account": 0.5, "within_simulated": 1.0}
    rows = {path: row | {"measured_p95_ms": 150.0, "records": 9} for path, row in paths.items()}
    shown = table({**rows, **summed(paths), "shaped": False})
    assert "50% of the paths within 25% of what was measured" in shown
    assert "network namespaces need root" in shown
