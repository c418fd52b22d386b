"""Large state that goes ahead of a move: what is there already does not travel again, and nothing else is left out."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from headwater.deploy import ahead
from headwater.deploy.ahead import Kept, Sending, key_of, large_states, pieces
from headwater.deploy.control.messages import Sent, Took
from headwater.deploy.state_transfer import packed, unpacked
from headwater.engine.checkpoint.chain import Chain, hold, is_held, let_go
from headwater.engine.checkpoint.recovery import VERSION
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.io.log.disk import SystemDisk

OLD, NEW = b"o" * 300_000, b"n" * 1000


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a checkpoint of three steps: one has large state, which has changed since, the others little."""
    store = Store(tmp_path / "old")
    steps = {"seen": {}, "means": {}, "last": {}}
    content = {"version": VERSION, "steps": steps, "positions": {}}
    tasks = {name: [{"state": at, "whole": True, "queue": []}] for at, name in enumerate(steps)}
    store.write(4, content | {"tasks": tasks}, [OLD, b"means", b"last"])
    tasks["seen"] = [{"state": 0, "whole": False, "queue": []}]
    store.write(5, content | {"tasks": tasks}, [NEW, b"means, later", b"last"], since=4)
    return tmp_path / "old"


def states_in(folder):
    tasks = Store(folder).latest().content["tasks"]
    return {name: [each["state"], *each["changes"]] for name, (each,) in tasks.items()}


@pytest.mark.parametrize("size", [2**22, 1000, 299_999])
def test_what_went_ahead_does_not_travel_again_and_is_filled_in_where_it_is(checkpoint, tmp_path, monkeypatch, size):
    monkeypatch.setattr(ahead, "_PIECE", size)
    ((step, stored),) = large_states(checkpoint, ["seen", "means"], "tanks-2")
    assert (step, stored.size) == ("seen", len(OLD))
    kept = Kept(tmp_path / "ahead")
    whole = [kept.take(piece) for piece in pieces("tanks-2", step, stored)]
    assert whole == [False] * (len(whole) - 1) + [True]
    assert kept.take(next(pieces("tanks-2", step, stored)))  # once more, after a cut
    files = packed(checkpoint, [key_of(stored)])
    assert sum(map(len, files.values())) < 5000 < sum(map(len, packed(checkpoint).values()))
    unpacked(files, tmp_path / "new")
    kept.fill_in(tmp_path / "new")
    assert states_in(tmp_path / "new") == {"seen": [OLD, NEW], "means": [b"means, later"], "last": [b"last"]}
    assert states_in(checkpoint) == states_in(tmp_path / "new")  # and the part can go on where it was
    kept.remove()
    unpacked(files, tmp_path / "another")
    with pytest.raises(RunError, match="state that went ahead is not here any more"):
        kept.fill_in(tmp_path / "another")


@pytest.mark.parametrize("links", [True, False])
def test_state_is_not_written_again_where_it_arrives_and_can_move_on_from_there(
    checkpoint, tmp_path, monkeypatch, links
):
    def refused(*_):
        raise PermissionError(errno.EPERM, "this disk knows no links")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    ((step, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    kept = Kept(tmp_path / "ahead")
    assert [kept.take(piece) for piece in pieces("tanks-2", step, stored)] == [True]
    moved = tmp_path / "moved"
    unpacked(packed(checkpoint, [key_of(stored)]), moved)
    kept.fill_in(moved)
    (beside,) = moved.glob("*.state")
    assert beside.samefile(tmp_path / "ahead" / key_of(stored)) == links
    kept.fill_in(moved)  # which changes nothing
    kept.remove()
    expected = {"seen": [OLD, NEW], "means": [b"means, later"], "last": [b"last"]}
    assert states_in(moved) == expected
    unpacked(packed(moved), tmp_path / "whole")
    assert states_in(tmp_path / "whole") == expected
    ((step, stored),) = large_states(moved, ["seen"], "tanks-3")
    again = Kept(tmp_path / "ahead again")
    assert [again.take(piece) for piece in pieces("tanks-3", step, stored)] == [True]
    files = packed(moved, [key_of(stored)])
    assert sum(map(len, files.values())) < 5000
    unpacked(files, tmp_path / "again")
    again.fill_in(tmp_path / "again")
    assert states_in(tmp_path / "again") == expected


def test_state_that_is_not_as_long_as_it_was_is_told(checkpoint, tmp_path):
    ((step, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    kept = Kept(tmp_path / "ahead")
    assert [kept.take(piece) for piece in pieces("tanks-2", step, stored)] == [True]
    os.truncate(tmp_path / "ahead" / key_of(stored), 7)
    unpacked(packed(checkpoint, [key_of(stored)]), tmp_path / "new")
    with pytest.raises(RunError, match="state that went ahead has 7 bytes here, not 300,000"):
        kept.fill_in(tmp_path / "new")


def test_what_has_changed_since_it_went_ahead_travels_as_a_whole(checkpoint, tmp_path):
    ((_, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    known = [key_of(stored)]
    whole = checkpoint / "000000004.checkpoint"
    content = whole.read_bytes()
    whole.unlink()
    whole.write_bytes(content)  # another file: nobody knows whether it is the same
    assert packed(checkpoint, known) == packed(checkpoint)
    unpacked(packed(checkpoint), tmp_path / "new")
    Kept(tmp_path / "ahead").fill_in(tmp_path / "new")
    assert states_in(tmp_path / "new") == states_in(checkpoint)


def test_what_went_ahead_is_neither_read_nor_looked_through_when_the_rest_travels(checkpoint, monkeypatch):
    ((_, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    read = []

    def noted(disk, fd, size, at, pread=SystemDisk.read):
        read.append(size)
        return pread(disk, fd, size, at)

    monkeypatch.setattr(SystemDisk, "read", noted)
    packed(checkpoint, [key_of(stored)])
    assert 0 < max(read) < 5000
    packed(checkpoint)
    assert max(read) == len(OLD)


def test_state_that_is_spoilt_or_gone_does_not_go_ahead(checkpoint, monkeypatch):
    monkeypatch.setattr(ahead, "_PIECE", 100_000)
    ((_, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    with open(stored.path, "r+b") as file:
        file.seek(stored.at + 150_000)
        file.write(b"?")
    assert not any(piece.is_last for piece in pieces("tanks-2", "seen", stored))
    goes = pieces("tanks-2", "seen", stored)
    assert next(goes).at == 0
    Path(stored.path).unlink()
    assert list(goes) == []
    assert list(pieces("tanks-2", "seen", stored)) == []


def test_pieces_that_are_lost_or_wrong_make_no_state(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "_PIECE", 100_000)
    ((_, stored),) = large_states(checkpoint, ["seen"], "tanks-2")
    kept, (first, second, third) = Kept(tmp_path / "ahead"), pieces("tanks-2", "seen", stored)
    assert not any(kept.take(piece) for piece in (first, third))  # the second is lost
    assert not any(kept.take(piece) for piece in (first, second, first, third))
    wrong = replace(third, data=b"?" * len(third.data))
    assert not any(kept.take(piece) for piece in (first, second))
    with pytest.raises(RunError, match="state of step 'seen' that goes ahead has come otherwise than it was sent"):
        kept.take(wrong)
    assert [kept.take(piece) for piece in (first, second, third)] == [False, False, True]
    with pytest.raises(RunError, match="state has a key that is none"):
        kept.take(replace(first, key="../../outside"))


def test_few_pieces_are_on_their_way_at_once(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "_PIECE", 10_000)
    found = large_states(checkpoint, ["seen"], "tanks-2")
    gone = found[0][1]._replace(path=str(tmp_path / "gone"))
    sending = Sending("tanks-1", "tanks-2", lambda: [*found, ("seen", gone)], lambda piece: None)
    kept = Kept(tmp_path / "ahead")
    on_the_way, most, came = sending.more(), 0, []
    assert sending.more() == []
    assert sending.took(Took("tanks-2", "seen", "of another", 0)) == []
    while not isinstance(on_the_way[0], Sent):
        most = max(most, len(on_the_way))
        piece = on_the_way.pop(0)
        came.append(kept.take(piece))
        on_the_way += sending.took(Took(piece.move, piece.step, piece.key, piece.at))
    key = key_of(found[0][1])
    assert (most, came) == (4, [False] * 29 + [True])
    assert on_the_way == [Sent("tanks-1", "tanks-2", {key: "seen"})]  # and of what is gone nothing
    assert (tmp_path / "ahead" / key).read_bytes() == OLD
    assert sending.took(Took("tanks-2", "seen", key, 0)) == []  # once all is said


def test_what_a_run_has_put_in_the_place_of_state_that_was_sent_goes_too(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "_PIECE", 50_000)
    kept = Kept(tmp_path / "ahead")
    look = partial(large_states, checkpoint, ["seen"], "tanks-2")
    sending = Sending("tanks-1", "tanks-2", look, lambda piece: None)
    on_the_way = sending.more()
    store, later = Store(checkpoint), bytes(reversed(range(256))) * 2000
    content = {"version": VERSION, "steps": {"seen": {}}, "positions": {}}
    content["tasks"] = {"seen": [{"state": 0, "whole": True, "queue": []}]}
    for number in (6, 7):  # whole ones: what was sent so far is there no more
        store.write(number, content, [later])
    while not isinstance(on_the_way[0], Sent):
        piece = on_the_way.pop(0)
        kept.take(piece)
        on_the_way += sending.took(Took(piece.move, piece.step, piece.key, piece.at))
    (sent,) = on_the_way
    files = packed(checkpoint, list(sent.keys))
    assert sum(map(len, files.values())) < 5000
    unpacked(files, tmp_path / "new")
    kept.fill_in(tmp_path / "new")
    assert states_in(tmp_path / "new") == {"seen": [later]}


def test_a_run_builds_on_what_is_copied_until_it_is_let_go(tmp_path):
    assert not is_held(tmp_path)
    hold(tmp_path, "tanks-2")
    let_go(tmp_path, "tanks-3")
    assert is_held(tmp_path)
    let_go(tmp_path, "tanks-2")
    assert not is_held(tmp_path)
    found = {}
    for held in (False, True):
        chain, whole = Chain(small_bytes=0), []
        for number in range(20):
            chain.begin(number, held=held)
            whole += [number] if chain.is_whole(number) else []
            chain.complete(number, 10)
        found[held] = whole
    assert found == {False: [0, 9, 18], True: [0]}


def test_of_a_part_without_a_checkpoint_nothing_goes_ahead(tmp_path):
    assert large_states(tmp_path / "none", ["seen"], "tanks-2") == []
