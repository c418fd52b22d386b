"""What is told of a flow whose file is gone: that what was kept stays, where that is so."""

import pytest

from headwater.serve.folder import Folder
from headwater.serve.home import Home
from headwater.serve.notify import Notifier
from headwater.serve.service import Service
from waiting import wait_until


@pytest.mark.parametrize("keeps", [True, False])
def test_only_where_what_was_kept_stays_that_is_told(tmp_path, caplog, keeps):
    caplog.set_level("INFO", "headwater.serve")
    (tmp_path / "flows").mkdir()
    file = tmp_path / "flows" / "tanks.py"
    file.write_text("")
    file.with_suffix(".toml").write_text("start = false\n")
    home = Home(tmp_path / "state")
    service = Service(Folder(tmp_path / "flows"), home, Notifier({}), stop_within_s=1, keeps=keeps)
    try:
        service.start()
        wait_until(lambda: "tanks" in service.names(), "a flow")
        file.unlink()
        service.look()
        wait_until(lambda: "tanks: its file is gone" in caplog.text, "a word that it is gone")
        assert ("what was kept of it stays in" in caplog.text) == keeps
    finally:
        service.shut(now=True)
        assert service.ended.wait(60)
        home.leave()
