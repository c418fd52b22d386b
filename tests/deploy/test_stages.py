"""The stages of a move: each from the end of the one before it."""

from headwater.deploy.coordinator.stages import Stages


def test_each_stage_begins_where_the_last_one_that_is_known_ended():
    stages = Stages()
    stages.begin(8.0)
    assert (stages.gap_s, stages.to_json()) == (None, {})
    stages.begin(11.0)  # the first word counts
    stages.end("prepare", 9.5)
    stages.end("ahead", 10.0)
    stages.end("stop", 10.25)
    stages.end("stop", 12.0)
    stages.end("hand over", 10.75)
    stages.end("start", 11.0)
    assert stages.gap_s == 1.0
    assert stages.to_json() == {"prepare": 1.5, "ahead": 0.5, "stop": 0.25, "hand over": 0.5, "start": 0.25}


def test_of_a_move_whose_beginning_nobody_saw_nothing_is_told():
    stages = Stages()
    stages.end("start", 11.0)
    assert (stages.gap_s, stages.to_json()) == (None, {})
