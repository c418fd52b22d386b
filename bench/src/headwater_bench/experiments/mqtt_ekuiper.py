"""eKuiper in the place of Headwater: a folder with its release, started with the same task as a rule.

Of ETL the rule does what one rule of SQL can: it reads SenML, keeps the values that are in range, and writes them again. It
makes up no missing values, and adds no notes about the sensor: so its rate is rather more than that of all of ETL.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwater.errors import RunError
from headwater_bench.experiments.mqtt_load import IN, OUT
from headwater_bench.riot.datasets import CITY

_PATIENCE_S = 30.0
_STREAM = f'CREATE STREAM load () WITH (DATASOURCE="{IN}", FORMAT="JSON")'
_FILTER = "SELECT ts, source, temperature FROM load WHERE temperature > 0"


def rule_of(task: str) -> str:
    """Return a task as eKuiper has it."""
    if task != "etl":
        return _FILTER
    place = {entry.name: at for at, entry in enumerate(CITY.fields)}
    columns = [
        f'CASE WHEN CAST(e[{place[name]}]->v, "float") BETWEEN {least} AND {most} THEN e[{place[name]}]->v '
        f"ELSE NULL END AS {name}"
        for name, (least, most) in CITY.ranges.items()
    ]
    meta = [f"e[{place[name]}]->v AS {name}" for name in CITY.meta]
    return f"SELECT bt, e[{place[CITY.id]}]->sv AS {CITY.id}, {', '.join([*meta, *columns])} FROM load"


@contextmanager
def ekuiper(folder: Path, port: int, task: str) -> Iterator[None]:
    """Run the filter, or ETL, in eKuiper's server, connected to a broker on this port; `folder` is an unpacked release."""
    server = folder / "bin" / "kuiperd"
    if not server.exists():
        raise RunError(f"there is no eKuiper in {folder}: expected bin/kuiperd there, as in an unpacked release")
    ports = _free_ports(2)
    broker = f"tcp://127.0.0.1:{port}"
    settings = {
        "KUIPER__BASIC__RESTPORT": str(ports[0]),
        "KUIPER__BASIC__PORT": str(ports[1]),
        "MQTT_SOURCE__DEFAULT__SERVER": broker,
        "MQTT_SOURCE__DEFAULT__QOS": "0",
    }
    process = subprocess.Popen(
        [str(server)], cwd=folder, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    rest = f"http://127.0.0.1:{ports[0]}"
    try:
        _await(rest, process)
        _forget(rest)
        _request(f"{rest}/streams", {"sql": _STREAM})
        action = {"server": broker, "topic": OUT, "qos": 0, "sendSingle": True}
        _request(f"{rest}/rules", {"id": "load", "sql": rule_of(task), "actions": [{"mqtt": action}]})
        yield
    finally:
        with suppress(RunError):
            _forget(rest)
        process.terminate()
        process.wait(_PATIENCE_S)


def _forget(rest: str) -> None:
    """Remove what an earlier run may have left in the folder."""
    for place in ("rules/load", "streams/load"):
        with suppress(urllib.error.HTTPError):
            _request(f"{rest}/{place}", None, method="DELETE")


def _request(url: str, what: Any, *, method: str = "POST") -> None:
    body = None if what is None else json.dumps(what).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    try:
        urllib.request.urlopen(request, timeout=_PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        if method == "DELETE":
            raise
        raise RunError(f"eKuiper does not take {what}: {error.read().decode(errors='replace')}") from None
    except OSError as error:
        raise RunError(f"eKuiper does not answer at {url}: {error}") from None


def _await(rest: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RunError("eKuiper ended at once; does bin/kuiperd run by itself?")
        try:
            urllib.request.urlopen(f"{rest}/ping", timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RunError(f"eKuiper did not answer at {rest} within {_PATIENCE_S:.0f} s")


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
