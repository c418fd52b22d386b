"""A lane forked from a warm parent is what a new process would be, and is started again by its keeper where it dies."""

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from promised import demand
from promising import until

from headwater.processes import family
from headwater.rate import process
from headwater.rate.client import board
from headwater.rate.windows import DIED
from supervisors import supervisor_pid
from waiting import PATIENCE_S

KEEP = "import sys\nfrom headwater.rate.keeper import keep\nsys.exit(keep('program:main', sys.argv[1:]))"


@pytest.fixture
def started():
    """Processes that end with the test."""
    processes = []
    yield processes
    for each in processes:
        each.kill()
        each.communicate()


@pytest.fixture
def program(tmp_path, home, started):
    """Starts a keeper whose lane runs a program."""

    def make(text, *arguments, keep=KEEP, **more):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        environment = {**os.environ, "HEADWATER_RUNTIME": str(home), "COLOUR": "blue"}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        started.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", keep, *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **more,
            )
        )
        return started[-1]

    return make


def ancestor(pid) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_a_lane_has_what_its_keeper_has_and_is_in_a_session_of_its_own(program, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    started = program(
        """
        import json, os, sys
        def main():
            said = {"argv": sys.argv[1:], "folder": os.getcwd(), "colour": os.environ["COLOUR"], "input": sys.stdin.read()}
            said |= {"own session": os.getsid(0) == os.getpid(), "processors": sorted(os.sched_getaffinity(0))}
            said |= {"warm": "headwater.engine" in sys.modules, "parent": os.getppid()}
            print(json.dumps(said))
            print("and an error", file=sys.stderr)
            sys.exit(7)
        """,
        "one",
        "two",
        cwd=tmp_path / "elsewhere",
    )
    out, err = started.communicate("all of it", timeout=PATIENCE_S)
    assert started.returncode == 7, err
    assert err == "and an error\n"
    said = json.loads(out)
    assert said.pop("parent") not in (started.pid, os.getpid())
    assert said == {
        "argv": ["one", "two"],
        "folder": str(tmp_path / "elsewhere"),
        "colour": "blue",
        "input": "all of it",
        "own session": True,
        "processors": sorted(os.sched_getaffinity(0)),
        "warm": True,
    }


def test_all_lanes_of_a_folder_have_one_warm_parent(program):
    text = "import os\ndef main():\n    print(os.getppid())"
    first, second = (program(text).communicate(timeout=PATIENCE_S)[0] for _ in range(2))
    assert first == second != ""


def test_an_error_is_told_as_python_tells_it(program):
    out, err = program("def main():\n    raise ValueError('no such thing')").communicate(timeout=PATIENCE_S)
    assert out == ""
    assert "ValueError: no such thing" in err
    assert "starts again" not in err


def test_signals_reach_the_lane_and_its_end_is_the_keepers(program):
    started = program(
        """
        import signal, sys
        def main():
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
            print("ready", flush=True)
            while True:
                signal.pause()
        """
    )
    assert started.stdout.readline() == "ready\n"
    started.terminate()
    assert started.wait(PATIENCE_S) == 3


def test_a_signal_from_before_there_is_a_lane_waits_for_it_and_there_until_it_can_be_heard(program):
    started = program(
        """
        import signal, sys
        def main():
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            while True:
                signal.pause()
        """,
        keep="import os, signal, sys\nfrom headwater.rate.keeper import keep\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(keep('program:main', [], holds=True))",
    )
    assert started.wait(60) == 3


def test_a_lane_whose_keeper_is_killed_is_told_to_stop(program):
    started = program(
        "import os, signal\ndef main():\n    print(os.getpid(), flush=True)\n    while True: signal.pause()"
    )
    lane = int(started.stdout.readline())
    assert process.began(lane) is not None
    started.kill()
    assert until(lambda: process.began(lane) is None)


def test_a_lane_that_died_starts_again_but_not_for_ever(program, tmp_path):
    started = program(
        """
        import os, signal
        from headwater.rate import fork_context
        def main():
            with open("deaths", "a") as file:
                file.write(f"{fork_context.keeper.deaths}\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        cwd=tmp_path,
    )
    _, err = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 1
    assert (tmp_path / "deaths").read_text().split() == ["0", "1", "2", "3", "4", "5"]
    assert "was killed by SIGKILL, and starts again in 0.1 s" in err
    assert "after it had started again 5 times" in err


def test_a_lane_that_ends_without_a_last_word_has_died_and_its_status_is_told(program, tmp_path):
    started = program(
        """
        import os
        from headwater.rate import fork_context
        def main():
            if not fork_context.keeper.deaths:
                os._exit(3)
            print("again")
        """,
        cwd=tmp_path,
    )
    out, err = started.communicate(timeout=PATIENCE_S)
    assert (started.returncode, out) == (0, "again\n")
    assert "ended with status 3 without a last word, and starts again in 0.1 s" in err


def test_lanes_outlive_their_warm_parent_and_end_as_they_do(program):
    started = program(
        "import os\ndef main():\n    print(os.getpid(), flush=True)\n    input()\n    raise SystemExit(5)"
    )
    lane = int(started.stdout.readline())
    parent = ancestor(lane)
    os.kill(parent, signal.SIGKILL)
    until(lambda: process.began(parent) is None)
    started.stdin.write("go on\n")
    started.stdin.flush()
    assert started.wait(PATIENCE_S) == 5


RATE_HZ = 500


@pytest.fixture
def numbers(tmp_path, home, started):
    """Runs a flow of numbers with a promise, from the command line; a profile spares the measuring."""
    demand(0.05).write(tmp_path / "p.json")
    (tmp_path / "counting.py").write_text(
        "from headwater import Flow, col, io\nflow = Flow('numbers')\n"
        f"made = io.Generate(lambda n: {{'n': n}}, {{'n': int}}, rate={RATE_HZ})\n"
        "some = flow.read('numbers', made).filter('burn', col.n >= 0)\n"
        "some.write('out', io.JsonLines('out.jsonl'))\n"
    )

    def make(*more, stderr=subprocess.PIPE):
        command = [
            sys.executable,
            "-m",
            "headwater",
            "run",
            "counting.py",
            "--promise",
            f"{RATE_HZ}/s",
            "--within",
            "5s",
        ]
        command += ["--best-effort", "--profile", "p.json", "--json", *more]
        started.append(
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env={**os.environ, "HEADWATER_RUNTIME": str(home)},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        )
        return started[-1]

    return make


def test_a_killed_lane_goes_on_from_its_checkpoint_with_its_cores_and_says_which_windows_broke(numbers, home, tmp_path):
    running = numbers("--checkpoint", str(tmp_path / "kept"), "--every", "300ms")
    before = until(lambda: (found := board(home)) and [each for each in found.lanes if each.kept])[0]
    os.kill(before.pid, signal.SIGKILL)
    after = until(lambda: [each for each in board(home).lanes if each.restarts and not each.down])[0]
    assert (after.id, after.cores, after.restarts) == (before.id, before.cores, 1)
    assert after.pid != before.pid
    seen = before.kept + before.broken
    until(lambda: [each for each in board(home).lanes if each.kept + each.broken > seen + 2])
    running.send_signal(signal.SIGINT)  # which its lane gets, and drains
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    assert f"process {before.pid}) was killed by SIGKILL, and starts again" in err
    promise = json.loads(out)["promise"]
    assert promise["restarts"] == 1
    assert promise["causes"][DIED] >= 1
    assert promise["windows"] >= before.kept + promise["causes"][DIED]
    assert all(0 < each["second"] < promise["windows"] for each in promise["broken"])
    written = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == list(range(len(written)))
    assert written
    assert board(home).lanes == []


def test_a_supervisor_that_is_killed_finds_the_lane_and_its_keeper_again(numbers, home, tmp_path):
    running = numbers("--checkpoint", str(tmp_path / "kept"), "--every", "300ms")
    before = until(lambda: (found := board(home)) and [each for each in found.lanes if each.kept])[0]
    os.kill(supervisor_pid(home), signal.SIGKILL)
    until(lambda: (found := board(home)) and [each for each in found.lanes if each.kept])
    os.kill(before.pid, signal.SIGKILL)
    after = until(lambda: (found := board(home)) and [each for each in found.lanes if each.restarts])[0]
    assert (after.id, after.cores) == (before.id, before.cores)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err


def test_a_sigterm_while_a_promised_flow_is_still_being_loaded_ends_it_as_one_that_runs(numbers, tmp_path):
    text = (tmp_path / "counting.py").read_text()
    wait = "from pathlib import Path\nimport time\nPath('loading').touch()\n"
    (tmp_path / "counting.py").write_text(f"{wait}while not Path('go on').exists(): time.sleep(0.01)\n{text}")
    running = numbers()
    until((tmp_path / "loading").exists)
    running.send_signal(signal.SIGTERM)
    assert "stopping as soon as it has started" in running.stderr.readline()
    (tmp_path / "go on").touch()
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    report = json.loads(out)
    assert report["left"] == 0


def test_a_killed_flow_frees_its_cores_and_ends_its_lane(numbers, home):
    running = numbers()
    held = until(lambda: (found := board(home)) and found.lanes)[0]
    running.kill()
    assert until(lambda: not board(home).lanes)
    assert until(lambda: process.began(held.pid) is None)


def command(pid) -> bytes:
    """What a process was started with: of one that was forked, what its parent was."""
    with suppress(OSError):  # it may have ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has room for one lane")


@several
def test_two_lanes_are_had_from_a_terminal_too_where_it_is_shown_that_they_are_asked_for(numbers, home, tmp_path):
    demand(2.4).write(tmp_path / "two.json")  # by which 500/s want 1.2 cores
    ours, theirs = pty.openpty()
    try:
        running = numbers("--profile", "two.json", "--for", "2s", stderr=theirs)
        os.close(theirs)
        out, _ = running.communicate(timeout=PATIENCE_S)
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
    assert running.returncode == 0, said
    assert "asking for 500/s within 5 s" in said
    assert json.loads(out)["promise"]["lanes"] == 2


@pytest.mark.thorough
@several
def test_one_of_several_lanes_that_dies_without_a_checkpoint_has_all_of_them_start_again(numbers, home, tmp_path):
    demand(2.4).write(tmp_path / "two.json")  # by which 500/s want 1.2 cores
    running = numbers("--profile", "two.json")
    before = until(lambda: (found := board(home)) and [each for each in found.lanes if each.kept])[0]
    assert before.lanes == 2
    (other,) = [pid for pid in family(before.pid)[1:] if command(pid) == command(before.pid)]
    os.kill(other, signal.SIGKILL)
    after = until(lambda: (found := board(home)) and [each for each in found.lanes if each.restarts])[0]
    assert (after.id, after.lanes, after.cores) == (before.id, 2, before.cores)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    assert "ended with status 1 without a last word, and starts again in 0.1 s" in err
