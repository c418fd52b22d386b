"""A compiler that takes as long as a test wants."""

from contextlib import contextmanager

from headwater.data.jit import service
from headwater.engine import pace
from waiting import PATIENCE_S


@contextmanager
def slow_compiler(monkeypatch, kernel, done):
    """Have the compiler not done before the event `done` is set, and nothing compiled of a kernel before."""
    answer = service._Request.answer
    monkeypatch.setattr(service._Request, "answer", lambda request: (done.wait(PATIENCE_S), answer(request)))
    monkeypatch.setattr(service._Request, "is_there", lambda request: True)
    monkeypatch.setattr(service, "from_cache", lambda kernel, signature: None)
    monkeypatch.setattr(pace, "PROBE_S", 60)  # however busy this machine is
    monkeypatch.setattr(kernel, "_forms", {})
    monkeypatch.setattr(kernel, "_loaded", {})
    monkeypatch.setattr(service, "_requests", {})
    yield done
    done.set()
    service.wait_until_compiled()
