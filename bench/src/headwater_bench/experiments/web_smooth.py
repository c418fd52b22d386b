"""How much of a browser the largest pages take: a flow of a hundred steps, a net of twenty sites; with each refresh."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.deploy.api.routes import Answers
from headwater.serve.http import Server
from headwater.web.process import Dashboard
from headwater.web.settings import Settings

STEPS, SITES = 100, 20
_TOKEN = "a-token-for-one-measurement"
_SPENT = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def flow_of_many_steps() -> str:
    """Return a program: a flow of a hundred steps, at a rate that leaves a machine idle."""
    lines = ["from headwater import Flow, col, io", "", 'flow = Flow("many")']
    lines += ['stream = flow.read("read", io.Generate(lambda n: {"n": n}, {"n": int}, rate=50))']
    lines += [f'stream = stream.filter("step {n}", col.n >= 0)' for n in range(STEPS - 2)]
    return "\n".join([*lines, 'stream.write("out", io.Discard())', ""])


class _Coordinator:
    """Says of twenty sites something new each time, as a coordinator would of a busy flow."""

    def __init__(self) -> None:
        self._turn = 0

    def status(self) -> dict[str, Any]:
        self._turn += 1
        names = [f"site {n:02d}" for n in range(SITES)]
        flow = {"name": "many", "id": "many-1", "phase": "running", "moving": False, "policy": None, "moves": []}
        places = [
            {"name": name, "x": n % 5, "y": n // 5, "cloud": n == SITES - 1, "price": 0.1}
            for n, name in enumerate(names)
        ]
        return {
            "flow": flow,
            "sites": [self._site(n, name) for n, name in enumerate(names)],
            "links": [self._link(names[n], names[(3 * n + 1) % SITES], n) for n in range(SITES - 1)],
            "net": {"name": "city", "sites": places},
        }

    def _site(self, n: int, name: str) -> dict[str, Any]:
        steps = [f"step {n}-{m}" for m in range(STEPS // SITES)]
        counts = {"records_in": 1000 * self._turn + n, "records_out": 990 * self._turn, "restarts": 0}
        return {"name": name, "here": True, "steps": steps, "state": "running", "why": "", "load": 0.1 * n} | (
            counts | {"cores": 2.0, "price": 0.1, "carbon": 200.0 + self._turn}
        )

    def _link(self, one: str, other: str, n: int) -> dict[str, Any]:
        hz = 100.0 * n + self._turn
        stream = {"stream": f"step {n}-0", "records": 1000 * self._turn, "hz": hz}
        return {"from": one, "to": other, "streams": [stream], "hz": hz, "latency_s": 0.01}


@contextmanager
def many_sites() -> Iterator[tuple[str, str]]:
    """Have a page of twenty sites; its address and the token."""
    answers = Answers(_Coordinator())  # type: ignore[arg-type]  # it has what the page asks for
    with Server(answers, "127.0.0.1", 0, _TOKEN, routes=answers.routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dashboard = Dashboard(Settings(server.url, _TOKEN, pages=answers.pages))
        try:
            yield dashboard.start(), _TOKEN
        finally:
            dashboard.close()
            server.shutdown()


def script_ms(page: Any, seconds: float) -> float:
    """Return the milliseconds that a page takes of its browser each second, that is with each refresh."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _spent_s(session)
    page.wait_for_timeout(1000 * seconds)
    return 1000 * (_spent_s(session) - before) / seconds


def _spent_s(session: Any) -> float:
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(sum(metrics[name] for name in _SPENT))
