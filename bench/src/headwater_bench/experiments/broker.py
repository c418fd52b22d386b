"""An MQTT broker as a process of its own, for measurements: mosquitto where installed, else amqtt."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import RunError
from headwater_bench.servers import free_port, wait_for

_PATIENCE_S = 20.0


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker on a free port of this machine; yields its URL."""
    port = free_port()
    path = shutil.which("mosquitto")
    command = (
        [path, "-p", str(port)] if path else [sys.executable, "-m", "headwater_bench.experiments.broker", str(port)]
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"mqtt://bench@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    try:
        wait_for(port, process)
    except AssertionError as error:
        raise RunError(
            f"there is no MQTT broker: {error}; is mosquitto or amqtt installed? --sink null needs none"
        ) from None


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
