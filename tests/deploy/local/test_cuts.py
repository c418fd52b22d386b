"""Links that somebody asks to be cut: who has them hears of it, and says what it has done."""

import threading
import time

import pytest

from headwater.deploy.local.cuts import CutLink, Cuts
from headwater.errors import RunError

SITES = ["barn", "shed", "cloud"]


@pytest.fixture
def cuts(tmp_path):
    """Return what asks, while somebody does it."""
    doing, over = Cuts(tmp_path), threading.Event()
    doing.begin(SITES, "")

    def do():
        while not over.wait(0.005):
            doing.did(SITES, doing.due(time.time()))

    thread = threading.Thread(target=do)
    thread.start()
    yield Cuts(tmp_path)
    over.set()
    thread.join()


def test_links_are_cut_one_by_one_and_mended(cuts):
    assert cuts.cut("barn", "cloud", "silent") == [CutLink("barn", "cloud", "silent")]
    assert cuts.cut("cloud", "barn", "reset") == [CutLink("cloud", "barn", "reset")]  # it is the same link
    assert len(cuts.cut("coordinator", "shed", "silent")) == 2
    assert cuts.mend("barn", "cloud") == [CutLink("shed", "coordinator", "silent")]
    assert cuts.mend() == []


def test_a_site_is_cut_off_from_all_and_a_link_is_mended_when_its_time_is_over(cuts):
    ends = {(each.one, each.other) for each in cuts.cut("shed", None, "silent")}
    assert ends == {("shed", "barn"), ("shed", "cloud"), ("shed", "coordinator")}
    assert cuts.mend("shed") == []
    (one,) = cuts.cut("barn", "shed", "reset", 3600.0)
    assert cuts.due(one.until_s - 1) == [one]
    assert cuts.due(one.until_s + 1) == []


@pytest.mark.parametrize(
    ("site", "other", "told"),
    [
        ("bern", None, "runs no site 'bern'; did you mean 'barn'?"),
        ("barn", "clout", "runs no site 'clout'; did you mean 'cloud'?"),
        ("barn", "barn", "site 'barn' has no link to itself"),
        ("coordinator", None, "runs no site 'coordinator'; there are 'barn', 'cloud', 'shed'"),
    ],
)
def test_what_is_no_link_is_told(cuts, site, other, told):
    with pytest.raises(RunError, match=told.replace("?", r"\?")):
        cuts.cut(site, other, "silent")


def test_without_anybody_who_has_links_none_is_cut(tmp_path):
    with pytest.raises(RunError, match="no 'headwater up' runs with this state folder"):
        Cuts(tmp_path).cut("barn", None, "silent")
    Cuts(tmp_path).begin(SITES, "not root")
    with pytest.raises(RunError, match="no link can be cut: not root"):
        Cuts(tmp_path).cut("barn", None, "silent")
    with pytest.raises(RunError, match="no link can be cut or mended: not root"):
        Cuts(tmp_path).mend()


def test_one_who_had_links_and_was_killed_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.deploy.local.cuts._ANSWER_S", 0.05)
    Cuts(tmp_path).begin(SITES, "")
    with pytest.raises(RunError, match="does 'headwater up' still run"):
        Cuts(tmp_path).cut("barn", None, "silent")
