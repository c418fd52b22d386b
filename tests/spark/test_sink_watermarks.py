"""What a sink is told of event time, among its records; no Spark is started."""

import numpy as np

from headwater.data.batch import EMITTED, END, NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.spark.envelope import LAST, Envelope
from headwater.spark.sink_watermarks import SinkWatermarks

SCHEMA = Schema.of({"n": int})


def sent(sender, numbers, places, watermarks=()):
    batch = None
    if numbers:
        batch = Batch.of({"n": np.array(numbers)}, SCHEMA)
        batch.stamps[:, EMITTED] = places
    return Envelope(sender, 77, batch, list(watermarks))


def heard(hearing, *envelopes):
    return [each if isinstance(each, int) else each.batch["n"].tolist() for each in hearing.in_turn(envelopes)]


def test_records_and_time_follow_each_other_as_they_were_made(tmp_path):
    hearing = SinkWatermarks(tmp_path / "times", [1], after=-1)
    given = sent(1, [1, 2, 3], [10, 20, 30], [(20, 100), (LAST, END)])
    assert heard(hearing, given) == [[1, 2], 100, [3], END]


def test_of_several_stages_the_earliest_time_holds(tmp_path):
    hearing = SinkWatermarks(tmp_path / "times", [1, 2], after=-1)
    assert heard(hearing, sent(1, [1, 2], [10, 30], [(10, 100)]), sent(2, [7], [20], [(20, 50)])) == [[1], [7], 50, [2]]
    assert heard(hearing, sent(2, [], [], [(5, 200)])) == [100]
    assert heard(hearing, sent(1, [3], [10], [(LAST, END)])) == [[3], 200]


def test_records_carry_when_they_were_emitted_and_not_their_place(tmp_path):
    (found,) = SinkWatermarks(tmp_path / "times", [1], after=-1).in_turn([sent(1, [1, 2], [10, 20])])
    assert found.batch.stamps[:, EMITTED].tolist() == [77, 77]


def test_what_was_heard_is_known_after_a_restart_and_told_to_who_listens_then(tmp_path):
    hearing = SinkWatermarks(tmp_path / "times", [1, 2], after=-1)
    heard(hearing, sent(1, [], [], [(LAST, END)]), sent(2, [], [], [(10, 100)]))
    hearing.note(0)
    heard(hearing, sent(2, [], [], [(10, 300)]))
    hearing.note(1)  # and the sink was not told that part 1 counts
    again = SinkWatermarks(tmp_path / "times", [1, 2], after=0)
    assert heard(again, sent(2, [4], [5], [(10, 300)])) == [100, [4], 300]
    assert heard(SinkWatermarks(tmp_path / "times", [1, 2], after=1)) == [300]


def test_a_part_that_is_taken_back_is_heard_once_more(tmp_path):
    hearing = SinkWatermarks(tmp_path / "times", [1], after=-1)
    given = [sent(1, [1], [10], [(10, 100)]) for _ in range(2)]
    assert heard(hearing, given[0]) == [[1], 100]
    hearing.rollback()
    assert heard(hearing, given[1]) == [[1], 100]


def test_what_another_runner_knew_holds_from_its_last_part_on(tmp_path):
    hearing = SinkWatermarks(tmp_path / "times", [1], after=7, begin=(7, {1: 500}))
    assert heard(hearing) == [500]
    assert heard(SinkWatermarks(tmp_path / "times", [1], after=3, begin=(7, {1: 500}))) == []
    assert NO_WATERMARK < 500
