"""An MQTT broker as a process of its own, for measurements: mosquitto where installed, else amqtt."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import RunError

_PATIENCE_S = 20.0


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker on a free port of this machine; yields its URL."""
    port = _free_port()
    found = shutil.which("mosquitto")
    command = (
        [found, "-p", str(port)] if found else [sys.executable, "-m", "headwater_bench.experiments.broker", str(port)]
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(port, process)
        yield f"mqtt://bench@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RunError("the MQTT broker ended at once; is mosquitto or amqtt installed? --sink null needs none")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RunError(f"the MQTT broker did not answer on port {port} within {_PATIENCE_S:.0f} s")


async def _serve(port: int) -> None:
    from amqtt.broker import Broker

    settings = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}", "max_connections": 50}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    await Broker(settings).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
