"""A log whose folder somebody deletes while it is written: nothing counts as safe that is not there."""

import errno
import os
import shutil

import pytest

from headwater.errors import InputError
from headwater.io.log import Log, Reader, SystemDisk


def filled(folder, count, **options):
    log = Log(folder, **options)
    for number in range(count):
        log.append(b"%d" % number)
    log.sync()
    return log


def read(folder, start=0):
    reader = Reader(folder, start)
    found = []
    while entries := reader.read():
        found += [int(entry.data) for entry in entries]
    reader.close()
    return found


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "log"


def test_what_is_synced_after_the_folder_was_deleted_is_there_and_what_was_before(folder):
    log = filled(folder, 10)
    shutil.rmtree(folder)
    log.append(b"10")
    assert log.sync() == 11
    assert read(folder) == list(range(11))  # as after a kill: by the files alone
    log.close()
    assert filled(folder, 0).end == 11


def test_all_segments_that_are_needed_are_there_again(folder):
    log = filled(folder, 50, segment_bytes=200)
    consumer = log.consumer("flow")
    assert len(list(folder.glob("*.log"))) > 5
    consumer.release(20)
    shutil.rmtree(folder)
    log.look_again()
    assert set(range(20, 50)) <= set(read(folder))
    consumer.reader.seek(20)
    assert [int(entry.data) for entry in consumer.read(10**6)] == list(range(20, 50))
    consumer.close()
    log.close()
    again = Log(folder)
    assert (again.end, again.lost, again.consumer("flow").released) == (50, 0, 20)


def test_a_folder_that_is_deleted_just_when_it_was_found_in_place_is_there_again(folder, monkeypatch):
    log = Log(folder)
    log.append(b"one")
    log.sync()
    plain, deleted = log._is_in_place, []

    def then_deleted():
        found = plain()
        if not deleted:
            deleted.append(shutil.rmtree(folder))
        return found

    monkeypatch.setattr(log, "_is_in_place", then_deleted)
    log.look_again()
    log.close()
    assert [entry.data for entry in Reader(folder).read()] == [b"one"]


def test_one_file_that_is_deleted_is_there_again_and_one_that_nobody_needs_is_not(folder):
    log = filled(folder, 50, segment_bytes=200)
    consumer = log.consumer("flow")
    first, second, *_ = sorted(folder.glob("*.log"))
    second.unlink()
    log.look_again()
    assert read(folder) == list(range(50))
    consumer.release(50)
    assert not first.exists()
    log.look_again()
    assert not first.exists()


def test_a_segment_that_is_full_when_the_folder_is_gone_is_not_called_safe(folder):
    log = filled(folder, 3, segment_bytes=200)
    shutil.rmtree(folder)
    for number in range(3, 40):  # many segments, and no sync of ours
        log.append(b"%d" % number)
    assert read(folder) == list(range(log.synced))
    assert log.synced > 20
    log.close()


def test_a_folder_that_cannot_be_made_again_makes_nothing_safe(folder, monkeypatch):
    log = filled(folder, 3)
    shutil.rmtree(folder)
    mkdir = SystemDisk.mkdir

    def refused(disk, path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(SystemDisk, "mkdir", refused)
    log.append(b"3")
    with pytest.raises(InputError, match="read-only"):
        log.sync()
    assert log.synced == 3
    monkeypatch.setattr(SystemDisk, "mkdir", mkdir)
    assert log.sync() == 4
    assert read(folder) == [0, 1, 2, 3]
    log.close()


def test_a_folder_that_another_run_has_taken_meanwhile_is_left_to_it(folder, tmp_path):
    log = filled(folder, 3)
    folder.rename(tmp_path / "away")
    other = filled(folder, 1)
    log.append(b"3")
    with pytest.raises(InputError, match="another run is writing it"):
        log.sync()
    other.close()
    assert read(folder) == [0]


def test_a_note_beside_a_log_is_there_again(folder):
    log = filled(folder, 1)
    assert log.note("name", lambda: b"mine") == b"mine"
    shutil.rmtree(folder)
    log.look_again()
    log.close()
    assert Log(folder).note("name", lambda: b"other") == b"mine"


def test_a_log_to_which_nothing_is_appended_is_there_again_by_itself(folder):
    log = filled(folder, 5, sync_every_s=0.001)
    shutil.rmtree(folder)
    for _ in range(3000):
        if read_or_none(folder) == [0, 1, 2, 3, 4]:
            break
        log.wait(6, 0.01)
    assert read(folder) == [0, 1, 2, 3, 4]
    log.close()


def read_or_none(folder):
    try:
        return read(folder)
    except InputError:
        return None
