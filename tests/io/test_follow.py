"""Files that grow and are rotated: every line once, in order, by one run or by several."""

import json
import os
import shutil
import threading
import time

import pytest
from reading import taken

from headwater import Flow, engine, io
from headwater.errors import FlowError, InputError
from killed import killed_until
from waiting import PATIENCE_S

FIELDS = {"n": int}


def add(path, numbers, end="\n"):
    with path.open("a") as file:
        file.write("\n".join(f'{{"n": {n}}}' for n in numbers) + end)


def rename(path):
    """Rotate as logrotate does by default, with the older ones moved on."""
    for number in range(8, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def copy_and_cut(path):
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.log"


@pytest.fixture
def reader(path):
    reader = io.JsonLines(path, FIELDS, follow=True).open(pytest.fail)
    yield reader
    reader.close()


def test_a_file_that_is_not_there_yet_is_waited_for_and_a_line_without_an_end_too(path, reader):
    assert len(reader.read(10, 0)) == 0
    add(path, [0, 1], end="")
    assert taken(reader, 1) == [0]
    assert len(reader.read(10, 0.1)) == 0
    add(path, [], end="\n")
    assert taken(reader, 1) == [1]


@pytest.mark.parametrize("rotate", [rename, copy_and_cut])
def test_a_file_that_is_rotated_while_it_is_read(path, reader, rotate):
    add(path, range(50))
    assert taken(reader, 50) == list(range(50))
    add(path, range(50, 60))  # which nobody has read when it is rotated
    rotate(path)
    add(path, range(60, 100))
    assert taken(reader, 50) == list(range(50, 100))
    rename(path)
    add(path, range(100, 110))
    assert taken(reader, 10) == list(range(100, 110))
    assert len(reader.read(10, 0.1)) == 0


@pytest.mark.parametrize("rotate", [rename, copy_and_cut])
def test_files_that_were_rotated_while_nobody_read(path, reader, rotate):
    add(path, range(50))
    assert taken(reader, 42) == list(range(42))
    position = json.loads(json.dumps(reader.position))
    rotate(path)
    add(path, range(50, 70))
    time.sleep(0.02)  # so that the files' times tell their order
    rename(path)
    add(path, range(70, 80))
    later = io.JsonLines(path, FIELDS, follow=True).open(pytest.fail, position)
    assert taken(later, 38) == list(range(42, 80))
    later.close()


def test_files_that_are_rotated_again_before_it_is_their_turn(path, reader):
    add(path, range(50))
    assert taken(reader, 42) == list(range(42))
    position = json.loads(json.dumps(reader.position))
    rename(path)
    add(path, range(50, 70))
    later = io.JsonLines(path, FIELDS, follow=True).open(pytest.fail, position)
    time.sleep(0.02)  # so that the files' times tell their order
    rename(path)  # it has read nothing yet
    add(path, range(70, 80))
    assert taken(later, 7) == list(range(42, 49))
    time.sleep(0.02)
    rename(path)  # it is at the oldest file
    add(path, range(80, 90))
    assert taken(later, 41) == list(range(49, 90))
    later.close()


@pytest.mark.parametrize("is_copied", [True, False])
@pytest.mark.parametrize("is_live", [True, False])
def test_a_file_that_is_cut_off_and_renamed_before_anybody_looks_loses_nothing_that_came_after_the_cut(
    path, reader, is_copied, is_live
):
    add(path, range(50))
    assert taken(reader, 50) == list(range(50))
    if is_copied:
        add(path, range(50, 60))
        copy_and_cut(path)
    else:
        os.truncate(path, 0)
    add(path, range(60, 70))
    path.rename(path.with_name("app.log.2"))
    add(path, range(70, 80))
    later = reader if is_live else io.JsonLines(path, FIELDS, follow=True).open(pytest.fail, reader.position)
    expected = list(range(50 if is_copied else 60, 80))
    assert taken(later, len(expected)) == expected
    assert len(later.read(10, 0.1)) == 0
    if not is_live:
        later.close()


def test_a_file_that_is_gone_is_told_and_reading_goes_on(path, reader, caplog):
    add(path, range(10))
    assert taken(reader, 10) == list(range(10))
    path.unlink()
    add(path, range(100, 105))
    later = io.JsonLines(path, FIELDS, follow=True).open(pytest.fail, reader.position)
    assert taken(later, 5) == list(range(100, 105))
    assert "is gone" in caplog.text
    later.close()


def test_what_cannot_be_followed_is_told(path):
    with pytest.raises(FlowError, match="standard input"):
        io.JsonLines("-", FIELDS, follow=True)
    with pytest.raises(InputError, match="without follow"):
        io.JsonLines(path, FIELDS, follow=True).open(pytest.fail, [3, 1])


def test_runs_that_are_killed_while_a_file_is_rotated_have_every_line_once(path, tmp_path):
    out, count = tmp_path / "out.jsonl", 4000

    def write():
        for start in range(100, count, 100):
            add(path, range(start, start + 100))
            time.sleep(0.01)
            if start % 800 == 700 and start + 100 < count:
                rename(path)

    def run():
        flow = Flow("following")
        flow.read("in", io.JsonLines(path, FIELDS, follow=True)).write("out", io.JsonLines(out))
        return engine.start(flow, checkpoint=tmp_path / "checkpoint", every="20 ms")

    def numbers():
        text = out.read_text() if out.exists() else ""
        return [json.loads(line)["n"] for line in text.splitlines() if line.endswith("}")]

    add(path, range(100))
    first, end = run(), time.monotonic() + PATIENCE_S
    while len(numbers()) < 100 and time.monotonic() < end:
        time.sleep(0.01)
    first.stop()
    first.wait()  # from now on it is known which file is read
    writing = threading.Thread(target=write)
    writing.start()
    killed_until(lambda: len(set(numbers())) >= count, lambda: run().wait(), kills=6)
    writing.join()
    assert numbers() == list(range(count))
