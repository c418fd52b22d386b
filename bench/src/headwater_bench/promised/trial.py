"""Runs a plan as a user would, with `headwater up` and `headwater deploy`, and reads what its sinks have noted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import RunError
from headwater_bench.processes import end
from headwater_bench.promised.cases import Case
from headwater_bench.promised.ends import BEGAN, END, ages_ms

_WAIT_S = 240.0
_WARM_S = 3.0  #: in which sites come to work at their pace
_SHAPED = "links are as fast and as far as the net says"  #: what `headwater up` says where it can


class Trial:
    """A case at work; `close` ends all its processes."""

    def __init__(self, case: Case) -> None:
        self._case, self._state = case, case.folder / "state"
        self._log = case.folder / "log"
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, seconds: float) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Run it for so long, and return the ages of the records of each path in milliseconds."""
        case = self._case
        (case.folder / END).write_text(str(seconds + _WARM_S))
        self._start("up", str(case.net), "--measured-on", f"{case.core_ips:g}")
        deploy = self._start("deploy", str(case.plan), "--within", f"{_WAIT_S:g}s")
        self._wait(self._all_run)
        began_s = time.time() + 1.0
        (case.folder / f"{BEGAN}.new").write_text(repr(began_s))
        (case.folder / f"{BEGAN}.new").replace(case.folder / BEGAN)
        self._wait(lambda: deploy.poll() is not None)
        if deploy.returncode:
            raise self._failed(f"headwater deploy ended with {deploy.returncode}")
        by_path = {}
        for source, sink in case.expected:
            origin = None if case.origins is None else case.origins[source]
            ages = ages_ms(case.folder / f"{sink}.ages", began_s + _WARM_S, origin)
            if not len(ages):
                raise self._failed(f"nothing came from '{source}' to '{sink}'")
            by_path[source, sink] = ages
        return by_path

    @property
    def is_shaped(self) -> bool:
        """Whether the links between sites were those of the net."""
        return _SHAPED in self._log.read_text(errors="replace")

    def close(self) -> None:
        """End all processes."""
        end(self._running)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *words, "--state", str(self._state)],
                cwd=self._case.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        return process

    def _all_run(self) -> bool:
        try:
            status = ask(StateFolder(self._state), "status")
        except (NobodyError, RunError):
            return False
        return bool(status["flow"]) and all(site["state"] == "running" for site in status["sites"] if site["steps"])

    def _wait(self, met: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _WAIT_S
        while not met():
            if time.monotonic() > until_s or any(each.poll() for each in self._running):
                raise self._failed("the plan did not come to run, or to its end")
            time.sleep(0.1)

    def _failed(self, what: str) -> RunError:
        last_words = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
        return RunError(f"{self._case.name}: {what}; the last that was said:\n{last_words}")
