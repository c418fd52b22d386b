"""Messages as the world sends them: each is understood, or is a dead letter that says why, and is counted."""

from __future__ import annotations

import json
import time

import pytest

from headwater import engine
from headwater.data.column import Text
from headwater.io import Collect
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import repeated
from headwater_bench.riot.stats import stats
from headwater_bench.riot.viz import stats_viz

GOOD = messages(stream("CITY"), 0, 3).tolist()
YEAR_MS = 365 * 24 * 3600 * 1000


def changed(**values):
    """Return a good message with other values, by name, or with another time."""
    message = json.loads(GOOD[0])
    message["bt"] = values.pop("bt", message["bt"])
    for entry in message["e"]:
        if entry["n"] in values:
            entry["sv" if entry["n"] == "source" else "v"] = values[entry["n"]]
    return json.dumps(message, ensure_ascii=False)


def twice(name):
    message = json.loads(GOOD[0])
    message["e"].append({"n": name, "v": "1"})
    return json.dumps(message)


BAD = {
    "cut short": (GOOD[0][:-9], "not JSON"),
    "empty": (" ", "not JSON"),
    "not JSON at all": ("\x00\x01", "not JSON"),
    "a list": ("[1]", "no SenML"),
    "nested wrongly": ('{"e":[[]],"bt":1}', "no SenML"),
    "an entry without a name": ('{"e":[{"v":"1"}],"bt":1}', "no SenML"),
    "a name twice": (twice("dust"), "'dust' is there twice"),
    "no time": (json.dumps({"e": json.loads(GOOD[0])["e"]}), "base time"),
    "a time in words": (changed(bt="soon"), "base time"),
    "a time that is a fraction": (changed(bt=1.5), "base time"),
    "no time but null": (changed(bt=None), "base time"),
    "a time beyond all clocks": (changed(bt=10**30), "base time"),
    "a clock a year ahead": (changed(bt=int(time.time() * 1000) + YEAR_MS), "ahead of this machine's clock"),
    "a value missing": (GOOD[0].replace('"humidity"', '"humid"'), "'humidity' is missing"),
    "a value in words": (changed(light="dark"), "'light' is not a number"),
    "a value that is NaN": (changed(dust="NaN"), "'dust' is not finite"),
    "a value that is infinite": (changed(dust="-inf"), "'dust' is not finite"),
    "a bare NaN": (changed(dust=float("nan")), "not JSON"),
    "a megabyte of nonsense": ('{"e":' + "[" * 2**20, "not JSON"),
}


@pytest.mark.parametrize(("message", "reason"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("build", [etl, stats, pred, stats_viz], ids=["etl", "stats", "pred", "stats-viz"])
def test_what_is_no_message_is_a_counted_dead_letter_and_the_others_go_on(build, message, reason):
    texts = Text.of([GOOD[0], message, GOOD[1], GOOD[2]])
    report = engine.run(build(repeated(texts, 1e9, count=4)))
    parse = report.last.steps["parse"]
    assert (parse.records_in, parse.dead_letters, report.dead_letters) == (4, 1, 1)
    assert reason in report.examples[0]["error"]
    assert json.loads(report.examples[0]["record"])["message"] == message
    per_message = parse.records_out / 3
    assert per_message == int(per_message) >= 1


@pytest.mark.parametrize("wide", [False, True], ids=["observations", "rows"])
def test_unusual_messages_are_read_as_any_json_library_reads_them(wide):
    plain = json.loads(GOOD[0])
    noted = {"mâché-☂": ("quay", "radar"), plain["e"][0]["sv"]: ("mill", "solar")}
    numbers = {entry["n"]: float(entry["v"]) for entry in plain["e"] if entry["n"] in CITY.numbers}
    more = [{"n": f"other-{i}", "u": "x" * 50, "v": str(i)} for i in range(15_000)]
    unusual = [
        changed(source="mâché-☂"),
        json.dumps(json.loads(changed(source="mâché-☂"))),  # the same, with escapes
        changed(**numbers),  # numbers as numbers
        changed(bt=str(plain["bt"])),
        json.dumps({**plain, "e": plain["e"][::-1]}, indent=2),
        json.dumps({**plain, "e": [*plain["e"], *more]}),
    ]
    assert len(unusual[-1]) > 2**20
    rows = Collect()
    source = repeated(Text.of([GOOD[0], *unusual]), 1e9, count=7)
    report = engine.run(etl(source, insert=rows, notes=noted, wide=wide, instances={"publish": 1}))
    assert report.dead_letters == 0
    found = sorted(rows.records, key=lambda row: row["msg"])
    assert [row["source"] for row in found[1:3]] == ["mâché-☂"] * 2
    assert [row["location"] for row in found[1:3]] == ["quay"] * 2
    same = [{name: value for name, value in row.items() if name != "msg"} for row in found[3:]]
    assert all(row["timestamp"] == plain["bt"] for row in same)
    # what lies outside its range may be filled from what came before; the rest is what was sent
    for name, value in numbers.items():
        low, high = CITY.ranges[name]
        if low <= value <= high:
            assert [row[name] for row in same] == pytest.approx([value] * 4)


def test_a_year_ahead_means_by_this_machines_clock_and_the_past_is_welcome():
    now_ms = int(time.time() * 1000)
    texts = Text.of([changed(bt=now_ms + 30_000), changed(bt=0), changed(bt=now_ms - YEAR_MS)])
    report = engine.run(pred(repeated(texts, 1e9, count=3)))
    assert report.dead_letters == 0
    assert report.last.records_out == {"publish": 6}


def test_the_last_archive_is_as_old_as_the_last_message():
    report = engine.run(stats_viz(repeated(Text.of(GOOD), 1e9, count=300)))
    assert report.last.records_out["upload"] > 1
    assert report.last.latency.percentile(100) / 1e9 < 3600  # not since 1970
