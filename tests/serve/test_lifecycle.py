"""What is decided for a flow, without any process, file or clock."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.serve.lifecycle import (
    ABORT_S,
    FIRST_S,
    LONGEST_S,
    STEADY_S,
    Began,
    Checked,
    Ended,
    Gone,
    Imported,
    Lifecycle,
    Restart,
    Seen,
    Shut,
    Tick,
    Want,
)


def running(**given):
    life = Lifecycle(**given)
    assert life.handle(Seen("a"), 0) == ["start"]
    assert life.handle(Began(), 1) == []
    assert life.phase == "running"
    return life


def test_what_dies_is_started_again_after_a_rest_that_doubles():
    life, now, rests = running(), 1.0, []
    for _ in range(9):
        assert life.handle(Ended("died", "killed by SIGKILL"), now) == []
        assert (life.phase, life.why) == ("waiting", "killed by SIGKILL")
        rests.append(life.next_s - now)
        assert life.handle(Tick(), life.next_s - 0.01) == []
        now = life.next_s
        assert life.handle(Tick(), now) == ["start"]
        life.handle(Began(), now)
    assert rests[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert rests[-1] == LONGEST_S
    assert life.restarts == 9


def test_what_has_run_for_long_rests_as_if_it_had_never_died():
    life = running()
    life.handle(Ended("died"), 2)
    life.handle(Tick(), 3)
    life.handle(Began(), 3)
    life.handle(Ended("died"), 3 + STEADY_S)
    assert life.next_s == 3 + STEADY_S + FIRST_S


def test_an_import_that_takes_long_is_told_and_ended_and_tried_again_later():
    life = Lifecycle(file="levels.py", import_within_s=30)
    life.handle(Seen("a"), 0)
    life.handle(Imported(over=False), 100)  # it had to wait for something else first
    assert (life.handle(Tick(), 104), life.why) == ([], "")
    assert (life.handle(Tick(), 105), life.why) == ([], "has not started for 5 s: importing levels.py")
    assert (life.handle(Tick(), 111), life.why) == ([], "has not started for 10 s: importing levels.py")
    assert life.handle(Tick(), 130) == ["kill"]
    assert life.handle(Tick(), 131) == []
    life.handle(Ended("died", "killed by SIGKILL"), 132)
    assert (life.phase, life.next_s) == ("waiting", 132 + FIRST_S)
    assert life.why == "did not start within 30 s: importing levels.py does not end"
    assert life.handle(Tick(), life.next_s) == ["start"]


def test_what_is_imported_may_take_its_time_to_start():
    life = Lifecycle(import_within_s=30)
    life.handle(Seen("a"), 0)
    life.handle(Imported(over=False), 1)
    life.handle(Tick(), 10)
    life.handle(Imported(over=True), 11)
    assert (life.handle(Tick(), 1000), life.why, life.phase) == ([], "", "starting")


def test_a_changed_file_is_checked_before_the_old_flow_stops():
    life = running()
    assert life.handle(Seen("b"), 2) == ["check"]
    assert life.phase == "running"
    assert life.handle(Checked("b", None), 3) == ["stop"]
    assert life.handle(Ended("stopped"), 4) == ["start"]
    assert life.phase == "starting"
    assert life.print == "b"


def test_a_change_that_does_not_fit_leaves_the_old_flow_running_and_is_told_until_it_is_mended():
    life = running()
    life.handle(Seen("b"), 2)
    assert life.handle(Checked("b", "step 'x' is gone"), 3) == []
    assert (life.phase, life.change) == ("running", "step 'x' is gone")
    assert life.handle(Seen("b"), 4) == []  # not checked again and again
    assert life.handle(Seen("a"), 5) == []  # put back
    assert life.change is None


def changed_and_started():
    life = running()
    life.handle(Seen("b"), 2)
    life.handle(Checked("b", None), 3)
    assert life.handle(Ended("stopped"), 4) == ["start"]
    assert (life.phase, life.print) == ("starting", "b")
    return life


def test_a_change_that_seemed_right_and_does_not_start_gives_way_to_what_ran_before():
    for how in ("refused", "died"):
        life = changed_and_started()
        assert life.handle(Ended(how, "no such folder"), 5) == ["start"]
        assert (life.phase, life.print, life.change) == ("starting", "a", "no such folder")
        life.handle(Began(), 6)
        assert life.handle(Seen("b"), 7) == []  # not tried again and again
        life.handle(Ended("died"), 8)
        assert life.handle(Tick(), life.next_s) == ["start"]
        assert (life.print, life.change) == ("a", "no such folder")  # as long as the change is not mended
        life.handle(Began(), 10)
        assert life.handle(Seen("c"), 11) == ["check"]


def test_what_ran_before_and_does_not_start_any_more_leaves_the_change_its_chance():
    life = changed_and_started()
    life.handle(Ended("refused", "disk full"), 5)
    assert life.handle(Ended("refused", "disk full"), 6) == []
    assert (life.phase, life.change) == ("refused", None)
    assert life.handle(Tick(), 6 + LONGEST_S) == ["start"]
    assert life.print == "b"


def test_somebody_who_starts_a_flow_again_has_the_change_tried_that_was_refused():
    life = running()
    life.handle(Seen("b"), 2)
    life.handle(Checked("b", "step 'x' is gone"), 3)
    assert life.handle(Restart(), 4) == ["stop"]
    assert life.handle(Ended("stopped"), 5) == ["start"]
    assert (life.print, life.change) == ("b", None)


def test_the_answer_to_a_check_of_what_was_changed_once_more_means_nothing():
    life = running()
    life.handle(Seen("b"), 2)
    life.handle(Seen("c"), 3)
    assert life.handle(Checked("b", None), 4) == []
    assert life.phase == "running"


def test_what_is_refused_waits_for_its_file_to_change():
    life = Lifecycle()
    life.handle(Seen("a"), 0)
    life.handle(Ended("refused", "levels.py:3: SyntaxError"), 1)
    assert (life.phase, life.restarts) == ("refused", 0)
    assert life.handle(Tick(), 2) == []
    assert life.handle(Seen("b"), 3) == ["start"]


def test_what_is_refused_is_tried_again_from_time_to_time():
    life = Lifecycle()
    life.handle(Seen("a"), 0)
    life.handle(Ended("refused", "disk full"), 1)
    assert life.handle(Tick(), 1 + LONGEST_S) == ["start"]


def test_what_came_to_its_end_is_not_started_again_by_itself():
    life = running()
    life.handle(Ended("end"), 2)
    assert life.handle(Tick(), 1e9) == []
    assert life.phase == "ended"
    assert life.handle(Want(True), 1e9) == ["start"]


def test_what_is_stopped_stays_so_and_what_does_not_stop_is_told_to_give_up_and_killed():
    life = running(stop_within_s=5)
    assert life.handle(Want(False), 10) == ["stop"]
    assert life.handle(Tick(), 14.9) == []
    assert life.handle(Tick(), 15) == ["abort"]
    assert life.handle(Tick(), 15.1) == []
    assert life.handle(Tick(), 15 + ABORT_S) == ["kill"]
    assert life.handle(Ended("died", "killed by SIGKILL"), 30) == []
    assert (life.phase, life.why) == ("stopped", "killed by SIGKILL")
    assert life.handle(Seen("b"), 31) == []


def test_a_file_that_is_gone_stops_its_flow_and_one_that_comes_back_starts_it():
    life = running()
    assert life.handle(Gone(), 2) == ["stop"]
    assert life.handle(Seen("a"), 3) == []
    assert life.handle(Ended("stopped"), 4) == ["start"]
    life.handle(Began(), 5)
    life.handle(Gone(), 6)
    life.handle(Ended("stopped"), 7)
    assert life.phase == "removed"


def test_nothing_is_started_once_the_server_ends():
    life = running()
    assert life.handle(Restart(), 2) == ["stop"]
    assert life.handle(Shut(), 3) == []
    assert life.handle(Ended("stopped"), 4) == []
    assert life.handle(Want(True), 5) == []


def test_a_second_word_to_end_gives_up_at_once():
    life = running()
    assert life.handle(Shut(), 2) == ["stop"]
    assert life.handle(Shut(now=True), 3) == ["abort"]
    assert life.handle(Tick(), 3 + ABORT_S) == ["kill"]


events = st.one_of(
    st.builds(Seen, st.sampled_from("abc")),
    st.builds(Gone),
    st.builds(Want, st.booleans()),
    st.builds(Restart),
    st.builds(Checked, st.sampled_from("abc"), st.sampled_from([None, "no"])),
    st.builds(Began),
    st.builds(Ended, st.sampled_from(["end", "stopped", "refused", "died"])),
    st.builds(Tick),
    st.builds(Shut, st.booleans()),
)


@given(st.lists(events, max_size=40))
def test_there_is_never_more_than_one_process_whatever_happens(happened):
    life, has_process = Lifecycle(), False
    for now, event in enumerate(happened):
        if isinstance(event, Ended | Began) and not has_process:
            continue  # only a process can say so
        if isinstance(event, Ended):
            has_process = False
        for command in life.handle(event, now * 20.0):
            if command == "start":
                assert not has_process
                has_process = True
            elif command != "check":
                assert has_process
        assert has_process == (life.phase in ("starting", "running", "stopping"))
