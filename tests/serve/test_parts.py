"""Settings, the folder, the history and what systemd is told."""

import os
import socket

import pytest

from headwater.errors import FlowError, RunError
from headwater.serve.folder import Folder
from headwater.serve.history import History
from headwater.serve.home import Home, token_of
from headwater.serve.notify import Notifier
from headwater.serve.settings import Settings, read_settings


def test_a_flow_without_settings_has_the_usual_ones(tmp_path):
    assert read_settings(tmp_path / "levels.toml") == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("evry = '1 s'", "did you mean 'every'"),
        ("every = 1", "levels.toml"),
        ("every = ", "is no TOML"),
        ("stop_within = 0", "stop_within is a number of seconds"),
        ("inputs = ['a']", "levels.toml"),
    ],
)
def test_settings_that_are_wrong_say_what(tmp_path, text, said):
    (tmp_path / "levels.toml").write_text(text)
    with pytest.raises(FlowError, match=said):
        read_settings(tmp_path / "levels.toml")


def test_a_file_is_taken_once_it_has_been_the_same_twice(tmp_path):
    (tmp_path / "a.py").write_text("1")
    folder = Folder(tmp_path)
    assert list(folder.look(first=True)) == ["a"]
    (tmp_path / "b.py").write_text("2")
    assert list(folder.look()) == ["a"]
    assert list(folder.look()) == ["a", "b"]
    before = folder.look()["a"].print
    os.utime(tmp_path / "a.py")
    folder.look()
    assert folder.look()["a"].print == before  # only what is in it counts
    (tmp_path / "a.toml").write_text("every = '1 s'")
    folder.look()
    assert folder.look()["a"].print != before
    (tmp_path / "a.py").unlink()
    assert list(folder.look()) == ["b"]


def test_helpers_hidden_files_folders_and_names_that_cannot_be_shown_are_no_flows(tmp_path):
    for name in ("_helper.py", ".hidden.py", "notes.txt", "..py", "a\nb.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "sub.py").mkdir()
    with open(os.fsencode(tmp_path) + b"/\xff.py", "w"):
        pass
    assert Folder(tmp_path).look(first=True) == {}


def test_a_folder_that_cannot_be_read_for_a_moment_is_not_an_empty_one(tmp_path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "a.py").write_text("")
    folder = Folder(tmp_path / "flows")
    folder.look(first=True)
    (tmp_path / "flows").rename(tmp_path / "away")
    assert folder.look() is None
    (tmp_path / "away").rename(tmp_path / "flows")
    assert list(folder.look()) == ["a"]


def test_a_history_is_bounded_in_time_and_bytes():
    history = History(every_s=5, span_s=60, largest=400)
    for second in range(1000):
        history.add(second, os.urandom(20))
    assert history.nbytes <= 400
    assert 5 <= len(list(history.since(0))) <= 13
    assert len(list(history.since(990))) <= 3


def test_a_token_is_made_for_its_owner_alone_and_kept(tmp_path):
    token = token_of(tmp_path / "token", must_exist=False)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert len(token) > 30
    assert token_of(tmp_path / "token", must_exist=False) == token


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [("x" * 40, 0o644, "others can read"), ("short", 0o600, "one word"), ("two words of length", 0o600, "one word")],
)
def test_a_token_that_is_none_is_refused(tmp_path, text, mode, said):
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)
    with pytest.raises(RunError, match=said):
        token_of(tmp_path / "token", must_exist=True)


def test_names_of_flows_cannot_leave_the_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_RUNTIME", str(tmp_path / "run"))
    home = Home(tmp_path / "state")
    try:
        for name in ("a/../../b", "a\\b", "ä b", "%2e%2e"):
            assert home.of_flow(name).path.parent == tmp_path / "state" / "flows"
        with pytest.raises(RunError, match="in use by process"):
            Home(tmp_path / "state")
    finally:
        home.leave()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_by_a_datagram(tmp_path, abstract):
    name = f"@headwater-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if abstract else name)
        manager.settimeout(10)
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())})
        notifier.ready("two flows")
        assert manager.recv(1000) == b"READY=1\nSTATUS=two flows"
        notifier.alive()
        notifier.alive()  # only as often as is needed
        notifier.stopping()
        assert manager.recv(1000) == b"WATCHDOG=1"
        assert manager.recv(1000).startswith(b"STOPPING=1")


def test_without_systemd_nobody_is_told():
    notifier = Notifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    assert notifier.watchdog_s is None
    notifier.ready("")
    Notifier({"NOTIFY_SOCKET": "/nowhere"}).ready("")  # nor is it a reason to end
