"""Java starts from an archive of classes where there is one that fits, and as ever where there is none."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from headwater.processes import family
from headwater.spark import archiving, gateway, java
from headwater.spark.archive import SETTING, Archive, archive_of
from headwater.spark.checkup import checkup
from headwater.spark.session import _from_archive
from waiting import PATIENCE_S

LOCKING = """
import sys
from pathlib import Path
from headwater.spark.archive import Archive

def train(options):
    print("at it", flush=True)
    sys.stdin.read()

Archive(Path(sys.argv[1]), Path(sys.argv[2])).make(train)
"""


@pytest.fixture
def program():
    return java.find().home / "bin" / "java"


@pytest.fixture
def archive(tmp_path, program):
    return Archive(program, tmp_path / "classes" / "some.jsa")


def run(program, options, *words):
    return subprocess.run([program, *options, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def train_with(program):
    return lambda options: run(program, options, "-version").check_returncode()


def test_an_archive_is_made_when_java_ends_and_java_starts_from_it(archive, program):
    assert archive.options() == []
    assert archive.is_due()
    assert archive.make(train_with(program))
    assert not archive.is_due()
    done = run(program, archive.options(), "-Xshare:on", "-Xlog:class+load", "-version")
    assert (done.returncode, "shared objects file (top)" in done.stdout) == (0, True)
    assert [path.suffix for path in archive.path.parent.iterdir() if path.name != archive.path.name] == [".lock"]


def test_a_java_that_came_without_an_archive_of_its_own_classes_is_given_one(archive, program, monkeypatch):
    monkeypatch.setattr(Archive, "_has_own_base", lambda self: False)
    assert archive.make(train_with(program))
    assert "some.base.jsa:" in archive.options()[0]
    done = run(program, archive.options(), "-Xshare:on", "-Xlog:class+load", "-version")
    assert (done.returncode, "source: shared objects file" in done.stdout) == (0, True)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\0" * 100_000])
def test_a_java_that_finds_an_archive_unfit_starts_without_and_nobody_hears_of_it(archive, program, content, capfd):
    archive.path.parent.mkdir()
    archive.path.write_bytes(content)
    done = run(program, archive.options(), "-version")
    assert done.returncode == 0
    reading, writing = os.pipe()
    with open(writing, "w") as java_says:
        java_says.write(done.stdout)
    gateway._pass_on(reading, said := deque())
    assert "".join(said) == done.stdout
    assert capfd.readouterr().err == ""


def test_an_archive_that_is_another_process_s_is_left_to_it(archive, program):
    child = subprocess.Popen(
        [sys.executable, "-c", LOCKING, program, archive.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "at it\n"
        assert not archive.is_due()
        assert not archive.make(lambda options: pytest.fail("two at once"))
        child.stdin.close()
    assert not archive.path.exists()  # its Java has written none
    assert not archive.is_due()  # and would not today
    long_ago = time.time() - 2 * 86400
    os.utime(archive.path.with_suffix(".lock"), (long_ago, long_ago))
    assert archive.is_due()


def test_archives_that_nobody_has_used_for_long_are_removed_when_another_is_made(archive, program):
    archive.path.parent.mkdir()
    unused, used = (archive.path.with_name(name) for name in ("unused.jsa", "used.jsa"))
    long_ago = time.time() - 40 * 86400
    for path in (unused, used):
        path.touch()
        os.utime(path, (long_ago, long_ago))
    Archive(program, used).options()
    archive.make(lambda options: archive.path.parent.joinpath(options[-1].partition("=")[2]).touch())
    assert sorted(path.name for path in archive.path.parent.glob("*.jsa")) == ["some.jsa", "used.jsa"]


def test_other_jars_or_another_java_have_another_archive(tmp_path):
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"1")
    found = java.Java(tmp_path / "java", "17.0.1", "here")
    first = archive_of(found, tmp_path)
    assert archive_of(found, tmp_path) == first
    assert archive_of(java.Java(tmp_path / "java", "17.0.2", "here"), tmp_path) != first
    assert archive_of(found, tmp_path, [jar]) != first
    os.utime(jar, (1, 1))
    assert archive_of(found, tmp_path) != first


def test_archives_can_be_left_out(archive, monkeypatch):
    archive.path.parent.mkdir()
    archive.path.touch()
    monkeypatch.setenv(SETTING, "off")
    assert archive.options() == []
    archive.path.unlink()
    assert not archive.is_due()


def test_an_archive_that_is_due_is_made_after_the_end_of_the_process(archive, monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    archiving._start_making(archive)
    assert started == [[sys.executable, "-P", "-m", "headwater.spark.archiving"]]
    archive.path.parent.mkdir()
    archive.path.touch()
    archiving._start_making(archive)
    assert len(started) == 1


def test_who_only_looks_whether_spark_works_leaves_nothing_at_work():
    code = (
        "from headwater.spark import archiving\n"
        "class Due:\n"
        "    def is_due(self): print('asked'); return True\n"
        "archiving.subprocess.Popen = lambda *_, **__: print('started')\n"
        "archiving.make_at_exit(Due())\n"
    )
    said = [
        subprocess.run([sys.executable, "-c", code + rest], capture_output=True, text=True, check=True).stdout.split()
        for rest in ("", "archiving.leave_unmade()")
    ]
    assert said == [["asked", "asked", "started"], ["asked"]]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_checkup_starts_nothing_that_outlives_it(tmp_path, monkeypatch):
    for kept in java.cache_folder().glob("*"):
        if kept.name != "classes":  # kernels need not be compiled again
            (tmp_path / kept.name).symlink_to(kept)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    monkeypatch.delenv(SETTING, raising=False)
    assert checkup().workers > 0
    assert [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if makes_archive(pid, tmp_path)] == []


def makes_archive(pid, cache):
    try:
        environment, command = (Path(f"/proc/{pid}/{of}").read_bytes().split(b"\0") for of in ("environ", "cmdline"))
    except OSError:
        return False
    return f"HEADWATER_CACHE={cache}".encode() in environment and archiving.__name__.encode() in command


def test_a_session_starts_from_the_archive_where_there_is_one(tmp_path, program):
    archive = Archive(program, tmp_path / "a folder" / "some.jsa")
    assert _from_archive(archive) == {}
    archive.path.parent.mkdir()
    archive.path.touch()
    assert _from_archive(archive) == {archiving.OPTIONS: f"'-XX:SharedArchiveFile={archive.path}'"}


def test_an_archive_is_made_while_nobody_else_wants_the_processor():
    code = "from headwater.spark.archiving import give_way; give_way(); print(open('/proc/self/autogroup').read())"
    if not os.path.exists("/proc/self/autogroup"):
        pytest.skip("sessions have no shares of their own here")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, start_new_session=True
    )
    assert done.stdout.split()[-2:] == ["nice", "19"]


def test_who_makes_an_archive_ends_at_sigterm_with_all_that_it_has_started(tmp_path):
    environment = {**os.environ, "HEADWATER_CACHE": str(tmp_path)}
    making = subprocess.Popen([sys.executable, "-P", "-m", archiving.__name__], env=environment, stderr=subprocess.PIPE)
    with making:
        started = []
        while not any("ArchiveClassesAtExit" in command_of(pid) for pid in started):
            started = family(making.pid)[1:]
            assert making.poll() is None, making.stderr.read()
            time.sleep(0.05)
        making.terminate()
        making.communicate(timeout=PATIENCE_S)
    assert making.returncode == 128 + signal.SIGTERM
    assert [command for pid in started if (command := command_of(pid))] == []
    assert [path.suffix for path in (tmp_path / "classes").iterdir()] == [".lock"]


def command_of(pid):
    """What runs as a process; nothing where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline") as command:
            return command.read()
    except OSError:
        return ""
