"""What is installed is known as such where the folder of the environment is a link."""

import sys
import types

import pytest

pytest.importorskip("pyspark")


def test_what_is_installed_is_not_the_users_where_the_environment_is_a_link(tmp_path, monkeypatch):
    import importlib
    import sysconfig

    from headwater.spark import broadcast

    kept, link = tmp_path / "kept", tmp_path / "venv"
    kept.mkdir()
    link.symlink_to(kept)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(link))
    for name, is_users in (("venv/bread.py", False), ("own.py", True)):
        module = types.ModuleType("bread")
        module.__file__ = str(tmp_path / name)
        spec = importlib.util.spec_from_file_location("looked_at_again", broadcast.__file__)
        again = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(again)
        assert again._is_users("bread", module) is is_users
    assert "looked_at_again" not in sys.modules
