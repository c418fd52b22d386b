"""The demo's overload is one: its shares are of what the engine sustains, or of full speed, and what came out is seen."""

from __future__ import annotations

import pytest

from headwater_bench.cli import demo as command
from headwater_bench.experiments import demo
from headwater_bench.experiments.demo import ACT, Scale, is_overload, scale_of, under_overload
from headwater_bench.experiments.descent import Found


def test_shares_are_of_the_capacity_where_that_was_found_and_of_full_speed_elsewhere():
    assert scale_of(Found(90.0, 100.0, 9, is_sure=True)) == Scale(90.0, "capacity")
    assert scale_of(Found(20.0, 100.0, 36, is_sure=False)) == Scale(100.0, "full speed")


def test_an_overload_is_one_of_which_less_comes_out():
    scale = Scale(100.0, "capacity")
    assert is_overload([{"load": 0.8, "out_hz": 80}, {"load": 1.6, "out_hz": 105}], scale)
    assert not is_overload([{"load": 0.8, "out_hz": 60}, {"load": 1.6, "out_hz": 158}], scale)


class Act:
    """In the place of what plays the act: an engine that delivers up to a limit."""

    def __init__(self, limit_hz):
        self.limit_hz, self.scales = limit_hz, []

    def __call__(self, scale):
        self.scales.append(scale)
        phases = [
            {"load": share, "out_hz": min(share * scale.hz, self.limit_hz), "p50_ms": 1.0, "p99_ms": 2.0}
            for _, share in ACT
        ]
        return {}, {on: {"phases": phases} for on in ("engine", "threads")}


@pytest.fixture
def played(monkeypatch, tmp_path):
    def play(limit_hz, found):
        act = Act(limit_hz)
        monkeypatch.setattr(demo, "highest_sustained", lambda *given: found)
        monkeypatch.setattr(demo, "_played", act)
        monkeypatch.setattr(demo, "_write", lambda *given: None)
        return under_overload(tmp_path), act.scales

    return play


def test_an_overload_that_is_none_is_played_once_more_from_full_speed(played):
    told, scales = played(1000.0, Found(200.0, 300.0, 12, is_sure=True))
    assert [scale.name for scale in scales] == ["capacity", "full speed"]
    assert scales[1].hz > 320  # it had delivered 1.6 times 200
    assert not told["is_overload"]  # 1.6 times 352 is none either: that is told, and not tried for ever
    told, scales = played(400.0, Found(200.0, 300.0, 12, is_sure=True))
    assert told["is_overload"]
    assert (len(scales), told["capacity_hz"]) == (2, None)


def test_an_overload_is_played_once(played):
    told, scales = played(110.0, Found(100.0, 115.0, 12, is_sure=True))
    assert told["is_overload"]
    assert scales == [Scale(100.0, "capacity")]
    assert (told["capacity_hz"], told["restless"]) == (100, False)


def test_a_restless_machine_is_told(played):
    told, _ = played(110.0, Found(20.0, 115.0, 36, is_sure=False))
    assert told["restless"]
    assert told["capacity_hz"] is None
    assert told["is_overload"]
    said = command._restless(told)
    assert "too restless" in said
    assert "36 trials" in said
