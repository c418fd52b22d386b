import subprocess
import sys

import pytest

from headwater import io


def test_every_public_name_is_there():
    for name in io.__all__:
        assert getattr(io, name).__name__ == name
    assert set(io.__all__) <= set(dir(io))


def test_every_source_and_sink_says_how_it_resumes_and_delivers():
    classes = [getattr(io, name) for name in io.__all__ if hasattr(getattr(io, name), "open")]
    assert len(classes) > 12
    for kind in classes:
        reads, writes = hasattr(kind, "schema"), kind not in (io.Items, io.Generate, io.Replay, io.Webhook, io.Folder)
        assert hasattr(kind, "resume") or not reads, kind
        assert hasattr(kind, "delivery") or not writes, kind


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Pigeons'"):
        _ = io.Pigeons


def test_importing_sources_and_sinks_imports_no_system_of_theirs():
    heavy = ["pyarrow", "sqlite3", "numba"]
    code = f"import sys, headwater.io; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
