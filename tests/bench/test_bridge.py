"""The experiment on bridges: what it sends is what its receiver has, also after a cut, and a fault would be told."""

import shutil

import numpy as np
import pytest

from headwater.data.batch import Batch
from headwater_bench.bridges.records import SCHEMA, Checked, batches
from headwater_bench.experiments import bridge


@pytest.mark.thorough
def test_all_that_is_sent_is_received(tmp_path, monkeypatch):
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bridge, "_QUICK_RECORDS", 100_000)
    monkeypatch.setattr(bridge, "_RATE", 20_000)
    answer = bridge.run(quick=True, output=tmp_path / "out")
    assert (answer["lost"], answer["twice"], answer["wrong"]) == (0, 0, 0)
    assert answer["records"] == 100_000 + 60_000 + 100_000
    assert answer["records_per_s"] > 0
    assert answer["caught_up_per_s"] > 0
    assert "came once, in order" in bridge.table(answer)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_lost_comes_twice_or_was_altered_is_counted():
    first, second, third = batches(150)
    checked = Checked()
    checked.take(first)
    checked.take(third)
    assert checked.account(sent=150) == {"lost": 50, "twice": 0, "wrong": 0}
    checked.take(third)
    assert checked.account(sent=200) == {"lost": 100, "twice": 50, "wrong": 0}
    checked = Checked()
    altered = Batch({name: np.array(first[name]) for name in SCHEMA}, 50, first.stamps)
    altered["value"][7] = -1.0
    checked.take(altered)
    assert checked.account(sent=50)["wrong"] > 0
    assert second.length == 50
