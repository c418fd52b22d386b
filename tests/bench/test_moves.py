"""The experiment on moves: what was lost, came twice or has another state is counted, and how long records waited."""

import json
import tomllib

from headwater.net.table import net_from_table
from headwater_bench.moves.sites import net_of
from headwater_bench.moves.verdict import compared, different, longest_s, usual_s, waits_s


def written(folder, archive, windows):
    folder.mkdir()
    (folder / "archive.jsonl").write_text("".join(json.dumps(row) + "\n" for row in archive))
    (folder / "daily.jsonl").write_text("".join(json.dumps(row) + "\n" for row in windows))
    return folder


def rows(count, **changed):
    return [{"n": n, "seen": n + 1, "at": n * 1_000_000, "came": n + 0.25, **changed} for n in range(count)]


def test_what_is_the_same_but_for_when_it_came_is_equal(tmp_path):
    moved = written(tmp_path / "moved", rows(5), [{"n": 5}])
    other = written(tmp_path / "other", rows(5, came=99.0), [{"n": 5}])
    assert compared(moved, other, 5) == (0, 0, True)
    assert waits_s(moved) == [(float(n), 0.25) for n in range(5)]
    assert longest_s([(1.0, 0.2), (2.0, 0.9), (3.0, 0.1)], (0.5, 1.5)) == 0.2
    assert usual_s([(1.0, 9.0), (2.0, 0.1), (3.0, 0.2), (4.0, 0.3)], (2.0, 4.0)) == 0.2


def test_what_is_missing_or_twice_or_has_another_state_is_told(tmp_path):
    other = written(tmp_path / "other", rows(5), [{"n": 5}])
    lost = written(tmp_path / "lost", rows(4), [{"n": 5}])
    assert compared(lost, other, 5) == (1, 0, False)
    twice = written(tmp_path / "twice", [*rows(5), *rows(2)], [{"n": 5}])
    assert compared(twice, other, 5) == (0, 2, True)
    altered = written(tmp_path / "altered", [*rows(4), rows(5)[4] | {"seen": 1}], [{"n": 5}])
    assert compared(altered, other, 5) == (0, 0, False)
    window = written(tmp_path / "window", rows(5), [{"n": 4}])
    assert compared(window, other, 5) == (0, 0, False)
    assert different(window, other) == [
        "daily.jsonl, moved alone, 1 times: {'n': 4}",
        "daily.jsonl, undisturbed alone, 1 times: {'n': 5}",
    ]
    assert different(other, other) == []


def test_sites_have_their_parts_in_lanes_but_for_one_on_spark():
    def said(**lanes):
        return net_from_table(tomllib.loads(net_of(("edge-1", "lake"), ("lake",), **lanes)), "net").says

    assert said(lanes=2) == (("edge-1", "lanes", 2),)
    assert said() == ()
