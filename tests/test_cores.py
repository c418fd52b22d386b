"""Cores that a process may use: control groups made up of files, and one for real where root allows."""

import os
import subprocess
import sys
from math import inf

import pytest

from headwater import cores
from headwater.cores import usable_cores, whole_cores
from headwater.rate import cgroups
from headwater.rate.cgroups import Groups
from headwater.rate.grade import Grade
from headwater.rate.supervisor import Supervisor
from waiting import PATIENCE_S

MANY = 64


@pytest.fixture(autouse=True)
def many(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(MANY)))


def machine(folder, mount, group, quotas):
    """Make up a /proc and groups; `quotas` has what is in each group, by version."""
    proc, root = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    root.mkdir()
    (proc / "self" / "mountinfo").write_text(mount.format(root) + "\n")
    (proc / "self" / "cgroup").write_text(group + "\n")
    for path, said in quotas.items():
        place = root / path
        place.mkdir(parents=True, exist_ok=True)
        files = {"cpu.max": said} if isinstance(said, str) else dict(zip(FILES, said, strict=True))
        for name, text in files.items():
            (place / name).write_text(f"{text}\n")
    return proc


FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
V1 = "9 8 0:1 / {} rw - cgroup cgroup rw,cpu,cpuacct"
V2 = "9 8 0:1 / {} rw - cgroup2 cgroup2 rw"
FREE = (-1, 100_000)


@pytest.mark.parametrize(
    ("mount", "group", "quotas", "cores", "whole"),
    [
        pytest.param(V1, "4:cpu,cpuacct:/", {"": FREE}, MANY, MANY, id="v1: no bound"),
        pytest.param(V1, "4:cpu,cpuacct:/a", {"": FREE, "a": (50_000, 100_000)}, 0.5, 1, id="v1: half a core"),
        pytest.param(V1, "4:cpu:/a/b", {"a": (15_000, 10_000), "a/b": FREE}, 1.5, 2, id="v1: of the group above"),
        pytest.param(V1, "4:memory:/a\n5:cpu:/", {"": FREE, "a": (1000, 10_000)}, MANY, MANY, id="v1: of memory alone"),
        pytest.param(V2, "0::/", {"": "max 100000"}, MANY, MANY, id="v2: no bound"),
        pytest.param(V2, "0::/a/b", {"a": "max 100000", "a/b": "25000 50000"}, 0.5, 1, id="v2: half a core"),
        pytest.param(V2, "0::/a/b", {"a": "200000 100000", "a/b": "350000 100000"}, 2, 2, id="v2: the least counts"),
        pytest.param(V2, "0::/", {"": "120000 100000"}, 1.2, 2, id="v2: a container sees its group as the root"),
        pytest.param(
            "9 8 0:1 /docker/c1 {} rw - cgroup cgroup rw,cpu", "4:cpu:/docker/c1", {"": (50_000, 100_000)}, 0.5, 1,
            id="v1: a container is told its path on the machine",
        ),
        pytest.param(
            "9 8 0:1 /docker/c1 {} rw - cgroup cgroup rw,cpu", "4:cpu:/docker/c1/s", {"s": (70_000, 100_000)}, 0.7, 1,
            id="v1: a group in a container",
        ),
        pytest.param(V2, "0::/../other", {"": "50000 100000"}, 0.5, 1, id="v2: out of sight"),
        pytest.param(V2, "0::/a", {"a": "what is this"}, MANY, MANY, id="v2: not to be understood"),
        pytest.param("9 8 0:1 / {} rw - tmpfs tmpfs rw", "0::/a", {}, MANY, MANY, id="none"),
    ],
)  # fmt: skip
def test_cores_are_those_that_groups_leave(tmp_path, mount, group, quotas, cores, whole):
    proc = machine(tmp_path, mount, group, quotas)
    assert usable_cores(proc=proc) == cores
    assert whole_cores(proc) == whole


@pytest.mark.parametrize("beside", [b"/media/caf\xe9", b"/media/next\x0cline"], ids=["no text", "a form feed"])
def test_names_of_other_mounts_and_of_what_is_mounted_may_be_anything(tmp_path, beside):
    proc = machine(tmp_path, "9 8 0:1 / {} rw - cgroup2  rw", "0::/a", {"a": "50000 100000"})
    mounted = (proc / "self" / "mountinfo").read_bytes()
    (proc / "self" / "mountinfo").write_bytes(b"7 8 0:2 / " + beside + b" rw - vfat /dev/sdb1 rw\n" + mounted)
    assert usable_cores(proc=proc) == 0.5


def test_no_more_than_there_are_processors_to_run_on(tmp_path, monkeypatch):
    proc = machine(tmp_path, V2, "0::/", {"": "400000 100000"})
    assert usable_cores(proc=proc) == 4.0
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5})
    assert usable_cores(proc=proc) == 2.0


def test_where_nothing_tells_of_groups_processors_count(tmp_path):
    assert usable_cores(proc=tmp_path) == MANY
    assert cores._bound(tmp_path) == inf


def test_what_may_be_promised_is_what_the_groups_of_lanes_lie_in(tmp_path):
    machine(tmp_path, V2, "0::/", {"container": "50000 100000", "container/inner": "max 100000"})
    grade = Grade("reserved", "", groups=Groups(tmp_path / "cgroup" / "container" / "inner", 2))
    assert Supervisor(tmp_path / "home", grade).ledger.capacity == pytest.approx(0.45)


def test_in_a_group_of_half_a_core_for_real(tmp_path):
    found = cgroups.find()
    if found is None:
        pytest.skip("no cpu control group can be made here (not root, and none was handed down)")
    group = found.base / f"headwater-test-{os.getpid()}"
    group.mkdir()
    code = (
        "import sys, pathlib; sys.stdin.readline()\n"
        "from headwater.cores import usable_cores\n"
        "from headwater.engine import Options\n"
        "from headwater.engine.lanes.run import available\n"
        "from headwater.rate.cgroups import Groups\n"
        "from headwater.rate.grade import Grade\n"
        "from headwater.cli.doctor import _python\n"
        "unprotected = Grade('shared', '')\n"
        "print(usable_cores(), Options().workers, available(), unprotected.cores, 'leave 0.5 cores' in _python().seen)"
    )
    try:
        quota = ("cpu.max", "50000 100000") if found.version == 2 else (FILES[0], "50000")
        (group / quota[0]).write_text(quota[1])
        asked = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        (group / "cgroup.procs").write_text(str(asked.pid))
        said, _ = asked.communicate("go\n", timeout=PATIENCE_S)
        assert said.split() == ["0.5", "1", "1", "0.5", "True"]
        assert Grade("reserved", "", groups=Groups(group, found.version)).cores == 0.5
    finally:
        group.rmdir()
