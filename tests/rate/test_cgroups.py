"""Groups of the processor: version 1 for real where root allows, version 2 against a tree that looks like one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.rate import cgroups
from headwater.rate.cgroups import Groups
from headwater.rate.grade import grade_here


@pytest.fixture
def made_up(tmp_path):
    """A tree of version 2 in which the root hands nothing down yet."""
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    root.mkdir()
    (proc / "self" / "mountinfo").write_text(f"31 23 0:28 / {root} rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
    (proc / "self" / "cgroup").write_text("0::/user.slice/mine.scope\n")
    own = root / "user.slice" / "mine.scope"
    own.mkdir(parents=True)
    for place in (root, own):
        (place / "cgroup.controllers").write_text("cpuset cpu io")
        (place / "cgroup.subtree_control").write_text("")
        (place / "cgroup.procs").write_text("")
    (own / "cgroup.type").write_text("domain\n")  # which all have but the root
    (own / "cpu.weight").write_text("100\n")
    return root, own, proc


def test_version_2_is_handed_down_from_the_root_and_weighed_by_cores(made_up):
    root, _, proc = made_up
    groups = cgroups.find(proc)
    assert groups == Groups(root, 2)
    assert (root / "cgroup.subtree_control").read_text() == "+cpu"
    groups.put("a", 42, 0.5)
    group = root / "headwater.a"
    assert (group / "cpu.weight").read_text() == "5000"
    assert (group / "cgroup.procs").read_text() == "42"
    groups.weigh("a", 0.5, above=True)
    assert (group / "cpu.weight").read_text() == "100"  # what any other has, however little was reserved
    groups.weigh("a", 1.5, above=True)
    assert (group / "cpu.weight").read_text() == "150"
    assert groups.names() == ["a"]


def test_version_2_of_a_user_is_the_group_that_was_handed_to_them(made_up, monkeypatch):
    root, own, proc = made_up
    (root / "cgroup.controllers").write_text("io")  # not the user's to give
    (own / "cgroup.procs").write_text("7")
    assert cgroups.find(proc) == Groups(own, 2, nested=True)
    assert (own / "headwater.rest" / "cgroup.procs").read_text() == "7"  # only the root may have both
    assert Groups(own, 2).names() == []


def test_version_2_of_a_container_is_handed_down_after_its_processes_have_made_room(made_up):
    """Of its groups a container sees the one that it is in as the root, and in that one its processes are."""
    root, _, proc = made_up
    (root / "cgroup.type").write_text("domain\n")
    (root / "cgroup.procs").write_text("1")
    (proc / "self" / "cgroup").write_text("0::/\n")
    assert cgroups.find(proc) == Groups(root, 2, nested=True)
    assert (root / "headwater.rest" / "cgroup.procs").read_text() == "1"


def test_groups_within_one_that_weighs_as_any_other_are_told_to_need_more(made_up, monkeypatch):
    root, own, _ = made_up
    found = Groups(own, 2, nested=True)
    assert found.is_light
    monkeypatch.setattr(cgroups, "find", lambda: found)
    grade = grade_here()
    assert (grade.name, "weigh no more than any group beside" in grade.how) == ("reserved", True)
    assert "-p CPUWeight=10000" in grade.better
    (own / "cpu.weight").write_text("10000\n")
    assert not found.is_light
    assert grade_here().better == ""
    assert not Groups(root, 2).is_light  # the root has nothing beside it


@pytest.fixture
def made_up_1(tmp_path):
    """A tree of version 1, in which this process is in a group of a user's."""
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    own = root / "users" / "mine"
    own.mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text(
        f"30 23 0:27 / {tmp_path / 'other'} rw - cgroup cgroup rw,memory\n31 23 0:28 / {root} rw - cgroup cgroup rw,cpu\n"
    )
    (proc / "self" / "cgroup").write_text("5:memory:/\n4:cpu,cpuacct:/users/mine\n")
    return root, own, proc


def test_version_1_weighs_by_cores_beside_all_that_the_machine_runs(made_up_1):
    root, _, proc = made_up_1
    groups = cgroups.find(proc)
    assert groups == Groups(root, 1)
    assert not groups.is_light
    groups.put("a", 42, 0.5)
    group = root / "headwater.a"
    assert (group / "cpu.shares").read_text() == "131072"
    assert (group / "cgroup.procs").read_text() == "42"
    groups.weigh("a", 0.5, above=True)
    assert (group / "cpu.shares").read_text() == "1024"
    groups.weigh("a", 3.0, above=False)
    assert (group / "cpu.shares").read_text() == "262144"  # the most that there is


def test_version_1_of_a_user_is_the_group_that_was_handed_to_them(made_up_1, monkeypatch):
    root, own, proc = made_up_1
    usable = cgroups._usable
    monkeypatch.setattr(cgroups, "_usable", lambda groups: groups.base != root and usable(groups))
    assert cgroups.find(proc) == Groups(own, 1, nested=True)
    (own / "cpu.shares").write_text("1024\n")
    assert Groups(own, 1, nested=True).is_light


def test_a_group_of_version_1_is_given_as_much_real_time_as_it_has_reserved(made_up_1):
    _, own, proc = made_up_1
    (own / "cpu.rt_period_us").write_text("1000000\n")
    cgroups.allow_real_time(0.4, proc)
    assert (own / "cpu.rt_runtime_us").read_text() == "400000"


@pytest.mark.parametrize(
    ("mount", "group", "count"),
    [
        ("9 8 0:1 / {} rw - cgroup cgroup rw,cpu", "4:cpu:/", True),
        ("9 8 0:1 / {} rw - cgroup cgroup rw,cpu", "4:cpu:/user.slice", False),
        ("9 8 0:1 /docker/a1 {} rw - cgroup cgroup rw,cpu", "4:cpu:/", False),
        ("9 8 0:1 / {} rw - cgroup2 cgroup2 rw", "0::/", True),
        ("9 8 0:1 / {} rw - cgroup2 cgroup2 rw", "0::/user.slice/mine.scope", False),
    ],
)
def test_sessions_count_only_for_what_is_in_no_group_of_the_processor(made_up, mount, group, count):
    root, _, proc = made_up
    (proc / "self" / "mountinfo").write_text(mount.format(root) + "\n")
    (proc / "self" / "cgroup").write_text(group + "\n")
    assert cgroups.sessions_count(proc) == count


def test_root_in_a_container_that_may_write_no_groups_is_not_told_that_sessions_protect(monkeypatch):
    monkeypatch.setattr(cgroups, "find", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(Path, "read_text", lambda self: "1\n")
    for count, name in ((True, "session"), (False, "shared")):
        monkeypatch.setattr(cgroups, "sessions_count", lambda count=count: count)
        assert (grade_here().name, "--privileged" in grade_here().better) == (name, True)


def test_groups_that_nobody_is_in_are_swept_away(made_up):
    root, _, _ = made_up
    groups = Groups(root, 2)
    groups.put("busy", 42, 0.5)
    for name in ("killed", "probe-1", "rest"):
        (root / f"headwater.{name}").mkdir()
    groups.sweep()
    # one in which somebody is the system does not remove; here its files keep it
    assert sorted(each.name for each in root.glob("headwater.*")) == ["headwater.busy", "headwater.rest"]


def test_a_group_that_is_swept_away_before_anybody_is_in_it_is_made_again(made_up, monkeypatch):
    root, _, _ = made_up
    weigh, times = Groups.weigh, []

    def then_swept(self, name, cores, *, above):
        weigh(self, name, cores, above=above)
        if not times:
            shutil.rmtree(self.group(name))  # its files are the system's, and go with it
        times.append(name)

    monkeypatch.setattr(Groups, "weigh", then_swept)
    Groups(root, 2).put("a", 42, 0.5)
    assert (root / "headwater.a" / "cgroup.procs").read_text() == "42"
    assert times == ["a", "a"]


def test_a_group_that_is_swept_away_while_its_lanes_are_of_real_time_is_weighed_anew(made_up):
    root, _, _ = made_up
    groups = Groups(root, 2)
    groups.weigh("a", 0.5, above=False)  # all in it have left, to where real time is
    shutil.rmtree(groups.group("a"))
    groups.weigh("a", 0.25, above=False)
    assert (root / "headwater.a" / "cpu.weight").read_text() == "2500"


def test_where_there_is_no_processor_group_there_is_none(made_up):
    root, own, proc = made_up
    for place in (root, own):
        (place / "cgroup.controllers").write_text("io memory")
    assert cgroups.find(proc) is None
    assert cgroups.find(proc / "nowhere") is None


def test_a_process_is_put_into_a_group_of_its_own_and_given_back():
    groups = cgroups.find()
    if groups is None:
        pytest.skip("no cpu control group can be made here (not root, and none was handed down)")
    hog = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = f"test-{os.getpid()}"
    try:
        groups.put(name, hog.pid, 0.5)
        assert f"headwater.{name}" in Path(f"/proc/{hog.pid}/cgroup").read_text()
        weight = (
            groups.base / f"headwater.{name}" / ("cpu.shares" if groups.version == 1 else "cpu.weight")
        ).read_text()
        assert int(weight) == (131_072 if groups.version == 1 else 5000)
        groups.sweep()  # which leaves it: somebody is in it
        assert name in groups.names()
        groups.leave(hog.pid)
        groups.sweep()
        assert name not in groups.names()
        groups.weigh(name, 0.5, above=False)
        groups.put(name, hog.pid)
        groups.remove(name)
        assert f"headwater.{name}" not in Path(f"/proc/{hog.pid}/cgroup").read_text()
        assert name not in groups.names()
    finally:
        hog.kill()
        hog.wait()
        groups.remove(name)
