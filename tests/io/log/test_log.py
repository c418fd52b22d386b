"""The log on a real disk."""

import errno
import shutil
import subprocess
import sys
import threading
import time

import pytest

from headwater.errors import InputError
from headwater.io.log import Bounds, Consumer, Log, Reader, SystemDisk
from waiting import PATIENCE_S


def filled(folder, count, *, size=20, **options):
    log = Log(folder, **options)
    for number in range(count):
        assert log.append(data(number, size)) == number
    log.sync()
    return log


def data(number, size=20):
    return str(number).encode().ljust(size, b".")


def all_of(reader):
    found = []
    while entries := reader.read(500):
        found += entries
    return [entry.position for entry in found], [entry.data for entry in found]


def segments(folder):
    return sorted(folder.glob("*.log"))


def test_what_was_appended_is_read_back_and_goes_on_after_reopening(tmp_path):
    log = filled(tmp_path, 100, segment_bytes=1000)
    log.close()
    again = Log(tmp_path, segment_bytes=1000)
    assert (again.first, again.end, again.synced, again.cut_bytes, again.lost) == (0, 100, 100, 0, 0)
    assert again.append(data(100)) == 100
    again.close()
    positions, found = all_of(Reader(tmp_path, 37))
    assert positions == list(range(37, 101))
    assert found == [data(number) for number in positions]
    assert len(segments(tmp_path)) > 3


def test_an_entry_carries_its_time_priority_and_records(tmp_path):
    log = Log(tmp_path)
    log.append(b"", records=7, priority=3, created_ns=5)
    log.sync()
    assert log.reader().read() == [(0, 5, 3, 7, b"", 0)]
    log.close()


def test_nothing_is_read_before_it_is_safe_unless_asked_for(tmp_path):
    log = Log(tmp_path)
    log.append(b"a")
    reader, other, eager = log.reader(), Reader(tmp_path), log.reader(unsafe=True)
    assert (reader.read(), other.read(), len(eager.read())) == ([], [], 1)
    log.sync()
    assert (len(reader.read()), len(other.read()), eager.read()) == (1, 1, [])
    log.close()


def test_a_log_is_tailed_from_another_process(tmp_path):
    script = (
        "import sys, time\n"
        "from headwater.io.log import Reader\n"
        "reader, seen = Reader(sys.argv[1]), []\n"
        "print('ready', flush=True)\n"
        "while len(seen) < 300:\n"
        "    seen += [entry.data for entry in reader.read()]\n"
        "    time.sleep(0.001)\n"
        "print(seen == [str(n).encode().ljust(20, b'.') for n in range(300)], reader.lost, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        log = Log(tmp_path, segment_bytes=1000, sync_every_s=0.002)
        for number in range(300):
            log.append(data(number))
            if number % 50 == 0:
                time.sleep(0.005)
        assert log.wait(300, 30)
        assert other.communicate(timeout=PATIENCE_S)[0] == "True 0\n"
    log.close()


def test_two_writers_are_refused(tmp_path):
    log = Log(tmp_path)
    with pytest.raises(InputError, match="another run is writing it"):
        Log(tmp_path)
    script = f"from headwater.io.log import Log; Log({str(tmp_path)!r})"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "another run is writing it" in other.stderr
    log.close()
    Log(tmp_path).close()


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("byte", [5, 9, 30, 40])  # sign, length, position, data
def test_a_damaged_entry_costs_that_entry_and_is_told_with_its_place(tmp_path, caplog, byte):
    filled(tmp_path, 10).close()
    path = segments(tmp_path)[0]
    content = bytearray(path.read_bytes())
    at = 4 * len(content) // 10 + byte
    content[at] ^= 0x40
    path.write_bytes(content)
    log = Log(tmp_path)
    reader = log.reader()
    assert all_of(reader)[0] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert reader.lost == 1
    assert str(reader.troubles[0]) == (f"entry 4 cannot be read: {path} is damaged at byte {4 * len(content) // 10:,}")
    assert str(reader.troubles[0]) in caplog.text
    assert (log.lost, log.troubles) == (1, reader.troubles)
    assert log.append(b"on") == 10
    log.close()


@pytest.mark.parametrize("closed", [True, False])
def test_a_last_entry_that_was_safe_and_is_damaged_at_any_byte_is_told_and_counted(tmp_path, caplog, closed):
    log = filled(tmp_path / "log", 3)
    if closed:
        log.close()
    (path,) = segments(tmp_path / "log")
    content, size = path.read_bytes(), path.stat().st_size // 3
    for byte in range(2 * size, 3 * size):
        folder = tmp_path / str(byte)
        shutil.copytree(tmp_path / "log", folder)  # as a kill leaves it, if it is not closed
        damaged = bytearray(content)
        damaged[byte] ^= 1 << byte % 8
        (folder / path.name).write_bytes(damaged)
        caplog.clear()
        again = Log(folder)
        assert (again.lost, again.cut_bytes, again.end) == (1, 0, 3), byte
        told = f"entry 2 cannot be read: {folder / path.name} is damaged at byte {2 * size:,}"
        assert [str(trouble) for trouble in again.troubles] == [told]
        assert told in caplog.text
        assert "cut short" not in caplog.text  # which it was not: somebody was told that it is safe
        assert again.append(b"on") == 3
        again.close()
        reader = Reader(folder)
        assert (all_of(reader)[0], reader.lost) == ([0, 1, 3], 1)
        reader.close()
    log.close()


def test_a_last_entry_that_nobody_was_told_is_safe_is_taken_away_and_that_is_told(tmp_path, caplog):
    log = filled(tmp_path / "log", 2)
    log.append(data(2))
    shutil.copytree(tmp_path / "log", tmp_path / "killed")
    log.close()
    (path,) = segments(tmp_path / "killed")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    log = Log(tmp_path / "killed")
    assert (log.end, log.lost, log.cut_bytes) == (2, 0, len(content) // 3)
    assert "cut short by a crash, or damaged before they were safe" in caplog.text
    log.close()


def test_a_damaged_or_lost_segment_costs_what_was_in_it(tmp_path):
    filled(tmp_path, 40, segment_bytes=600).close()
    _, second, third, *_ = segments(tmp_path)
    lost = range(int(second.name[:20]), int(third.name[:20]))
    second.write_bytes(b"\x00" * 600)
    reader = Reader(tmp_path)
    assert all_of(reader)[0] == [number for number in range(40) if number not in lost]
    assert reader.lost == len(lost)
    second.unlink()
    reader = Reader(tmp_path)
    assert all_of(reader)[0] == [number for number in range(40) if number not in lost]
    assert reader.lost == len(lost)


@pytest.mark.parametrize("torn", [b"\x00" * 10, b"\x01" * 300, "half"])
def test_a_torn_end_is_cut_and_told(tmp_path, caplog, torn):
    filled(tmp_path, 10).close()
    path = segments(tmp_path)[0]
    content = path.read_bytes()
    path.write_bytes(content + (content[:40] if torn == "half" else torn))
    log = Log(tmp_path)
    assert (log.end, log.cut_bytes, log.lost) == (10, 40 if torn == "half" else len(torn), 0)
    assert "cut short by a crash" in caplog.text
    log.append(b"next")
    log.sync()
    assert all_of(log.reader())[0] == list(range(11))
    log.close()


def test_what_lies_behind_a_hole_and_was_never_safe_is_cut_so_that_none_is_missing_in_between(tmp_path):
    log = filled(tmp_path, 5)
    for number in range(5, 10):
        log.append(data(number))
    log._let_go()  # as a power cut does: no sync
    path = segments(tmp_path)[0]
    content = bytearray(path.read_bytes())
    size = len(content) // 10
    content[6 * size : 7 * size] = bytes(size)
    path.write_bytes(content)
    again = Log(tmp_path)
    assert (again.end, again.lost, again.cut_bytes) == (6, 0, 4 * size)
    assert all_of(again.reader())[0] == list(range(6))
    again.close()


def test_a_log_inside_a_log_is_not_taken_for_it(tmp_path):
    """Entries of another log are data here, also where this one is damaged."""
    filled(tmp_path / "inner", 20).close()
    log = Log(tmp_path / "outer")
    log.append(segments(tmp_path / "inner")[0].read_bytes())
    log.append(b"behind")
    log.close()
    path = segments(tmp_path / "outer")[0]
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    reader = Reader(tmp_path / "outer")
    assert [entry.data for entry in reader.read()] == [b"behind"]
    assert reader.lost == 1


def test_a_full_disk_is_told_and_appending_goes_on_when_there_is_room(tmp_path, file_limit):
    log = filled(tmp_path, 10)
    with file_limit(log.nbytes + 30):
        with pytest.raises(InputError, match=f"cannot append to the log in {tmp_path}: .*as large as it may get"):
            log.append(b"x" * 100)
        assert all_of(log.reader())[0] == list(range(10))
    assert log.append(b"again") == 10
    log.close()
    assert all_of(Reader(tmp_path))[0] == list(range(11))


class Broken(SystemDisk):
    """A disk on which one call fails as long as it is told to."""

    def __init__(self, call, code):
        self.failing = True
        plain = getattr(self, call)

        def broken(*given, **named):
            if self.failing:
                raise OSError(code, "")
            return plain(*given, **named)

        setattr(self, call, broken)


def test_a_failed_fsync_is_told_and_what_it_may_have_lost_is_written_again(tmp_path):
    disk = Broken("fsync", errno.EIO)
    disk.failing = False
    log = filled(tmp_path, 5, disk=disk)
    log.append(data(5))
    disk.failing = True
    for _ in range(2):
        with pytest.raises(InputError, match=r"cannot have 1 entries safe in the log .* is it still plugged in"):
            log.sync()
    assert log.synced == 5
    disk.failing = False
    assert log.sync() == 6
    assert len(segments(tmp_path)) == 2
    log.close()
    assert all_of(Reader(tmp_path)) == (list(range(6)), [data(number) for number in range(6)])


class Small(SystemDisk):
    """A disk that is full when the segments have so many bytes."""

    def __init__(self, folder, most):
        self._segments, self._most = lambda: folder.glob("*.log*"), most

    def write(self, fd, data):
        if sum(path.stat().st_size for path in self._segments()) + len(data) > self._most:
            raise OSError(errno.ENOSPC, "")
        return super().write(fd, data)


def test_a_full_disk_is_given_back_what_nobody_needs_any_more(tmp_path):
    log = Log(tmp_path, disk=Small(tmp_path, 1000))
    consumer, taken = log.consumer("sender"), []
    for number in range(100):
        try:
            log.append(data(number))
        except InputError:  # nothing of it is released yet
            log.sync()
            taken += all_of(consumer)[0]
            consumer.release(log.end)
            log.append(data(number))
    log.sync()
    assert 0 < len(taken) < 100
    assert taken + all_of(consumer)[0] == list(range(100))
    log.close()


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_a_read_only_folder_is_told_and_can_still_be_read(tmp_path, call):
    filled(tmp_path, 3).close()
    with pytest.raises(InputError, match=f"cannot keep a log in {tmp_path}: the file system is read-only"):
        Log(tmp_path, disk=Broken(call, errno.EROFS))
    assert all_of(Reader(tmp_path))[0] == [0, 1, 2]


# -- consumers and bounds ---------------------------------------------------------------------------------------------


def test_the_slowest_consumer_decides_what_is_removed(tmp_path):
    log = filled(tmp_path, 50, segment_bytes=600)
    fast, slow = log.consumer("fast"), log.consumer("slow")
    before = len(segments(tmp_path))
    assert len(all_of(fast)[0]) == 50
    fast.release(50)
    assert len(segments(tmp_path)) == before
    slow.release(30)
    assert 0 < log.first <= 30
    assert len(segments(tmp_path)) < before
    assert log.nbytes == sum(path.stat().st_size for path in segments(tmp_path))
    assert all_of(slow)[0] == list(range(30, 50))
    log.close()
    again = Log(tmp_path)
    assert all_of(again.consumer("slow"))[0] == list(range(30, 50))
    assert all_of(again.consumer("fast"))[0] == []
    again.close()


def test_a_consumer_of_another_process_releases_too(tmp_path):
    log = filled(tmp_path, 50, segment_bytes=600)
    consumer = Consumer(tmp_path, "elsewhere")
    assert len(all_of(consumer)[0]) == 50
    consumer.release(50)
    assert len(segments(tmp_path)) == 1
    assert log.append(data(50)) == 50
    log.close()
    assert all_of(consumer)[0] == [50]
    with pytest.raises(InputError, match="a consumer's name is letters"):
        log.consumer("../x")


def test_a_full_log_holds(tmp_path):
    log = Log(tmp_path, Bounds(1000))
    consumer = log.consumer("c")
    while log.nbytes < 930:
        log.append(data(0))
    with pytest.raises(InputError, match=r"no room in the log .* would pass the limit of 1,000"):
        log.append(b"x" * 100)
    count = log.end
    log.sync()
    assert len(consumer.read()) == count
    consumer.release(count)
    assert log.append(data(count)) == count
    with pytest.raises(InputError, match="no room"):
        log.append(b"x" * 1000)
    log.close()


def test_a_full_log_drops_the_oldest_and_counts_what_nobody_had_taken(tmp_path):
    log = Log(tmp_path, Bounds(2000, full="drop oldest"))
    consumer = log.consumer("c")
    log.append(b"taken", records=1000)
    log.append(data(0), records=2)
    log.sync()
    assert len(consumer.read(1)) == 1
    for number in range(1, 200):
        log.append(data(number), records=2)
        assert log.nbytes <= 2000
    log.sync()
    left = len(all_of(consumer)[0])
    assert log.dropped == {"log full": 2 * (200 - left)}
    assert consumer.reader.skipped == 200 - left
    log.close()


def test_a_full_log_drops_what_has_the_least_priority(tmp_path):
    log = Log(tmp_path, Bounds(3000, full="drop lowest"))
    consumer = log.consumer("c")
    kept = []
    for number in range(300):
        priority = 2 if number % 15 == 0 else number % 2
        position = log.append(data(number), priority=priority)
        if priority == 2:
            kept.append(position)
        assert log.nbytes <= 3000
    log.sync()
    found = []
    while entries := consumer.read():
        found += entries
    assert [entry.position for entry in found if entry.priority == 2] == kept
    assert {entry.priority for entry in found[:-10]} == {2}  # the last ones have not been looked at yet
    assert {entry.priority for entry in found} > {2}
    assert len(found) + log.dropped["log full"] == 300
    assert consumer.reader.lost == 0
    assert None not in [log.append(data(0), priority=2) for _ in range(100)]
    assert None in [log.append(data(0), priority=0) for _ in range(100)]
    log.close()


def test_what_is_too_old_is_dropped_and_counted(tmp_path):
    now_ns = [0]
    log = Log(tmp_path, Bounds(age_s=8), clock=lambda: now_ns[0])
    for second in range(20):
        now_ns[0] = second * 10**9
        log.append(data(second))
    log.sync()
    positions, _ = all_of(log.reader())
    assert 0 < positions[0] < 12
    assert positions[-1] == 19
    assert log.dropped == {"too old": positions[0]}
    now_ns[0] = 10**12
    log.append(b"now")
    log.sync()
    assert all_of(log.reader())[0] == [20]
    log.close()


def test_what_was_made_before_the_clock_was_set_is_as_old_as_the_run_that_finds_it(tmp_path):
    now_ns = [60 * 10**9]
    bounds = Bounds(age_s=86_400)
    log = Log(tmp_path, bounds, segment_bytes=200, clock=lambda: now_ns[0])
    for number in range(20):
        log.append(data(number))
    log.close()
    now_ns[0] = 2_000_000_000 * 10**9  # a time server has answered
    log = Log(tmp_path, bounds, segment_bytes=200, clock=lambda: now_ns[0])
    log.append(b"now")
    log.sync()
    assert all_of(log.reader())[0] == list(range(21))
    now_ns[0] += 2 * 86_400 * 10**9
    log.append(b"later")
    log.sync()
    assert all_of(log.reader())[0] == [21]
    assert log.dropped == {"too old": 21}
    log.close()


def test_bounds_that_make_no_sense_are_refused():
    for wrong, text in (({"nbytes": -1}, "0 or more bytes"), ({"age_s": 0}, "above 0 s"), ({"full": "x"}, "'hold'")):
        with pytest.raises(InputError, match=text):
            Bounds(**wrong)


# -- threads ----------------------------------------------------------------------------------------------------------


def test_many_threads_append_and_share_syncs(tmp_path):
    log = Log(tmp_path, segment_bytes=2000)

    def work(name):
        for number in range(50):
            position = log.append(f"{name} {number}".encode())
            assert log.sync() > position

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    positions, found = all_of(log.reader())
    assert positions == list(range(200))
    for name in range(4):
        assert [d for d in found if d.startswith(b"%d " % name)] == [b"%d %d" % (name, n) for n in range(50)]
    log.close()


def test_a_thread_makes_safe_what_was_appended(tmp_path):
    log = Log(tmp_path, sync_every_s=0.005)
    position = log.append(b"a")
    assert log.wait(position + 1, 30)
    assert log.synced == 1
    log.close()
    with pytest.raises(InputError, match="is closed"):
        log.append(b"b")


class Watched(SystemDisk):
    """Has somebody else do something as soon as the first file is closed, and goes on once he has done it or has to wait."""

    def __init__(self):
        self.meanwhile = None
        self.raised = []

    def close(self, fd):
        super().close(fd)
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            self.other = threading.Thread(target=self.caught, args=(act,))
            self.other.start()
            self.other.join(0.2)

    def caught(self, act):
        try:
            act()
        except Exception as error:
            self.raised.append(error)


def test_a_log_that_is_being_closed_can_be_looked_at(tmp_path):
    """The last checkpoint of a run had failed then, now and then: its source was closed by another thread."""
    disk = Watched()
    log = filled(tmp_path, 10, disk=disk)
    consumer = log.consumer("reader")
    disk.meanwhile = lambda: consumer.release(5)
    log.close()
    disk.other.join(PATIENCE_S)
    assert disk.raised == []
    assert consumer.released == 5
    consumer.close()
