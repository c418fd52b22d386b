"""A mosquitto of our own on loopback, and its own client programs as witnesses."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater_bench.servers import NotHereError, free_port, wait_for

_PATIENCE_S = 60
_PATH = "/usr/sbin:/usr/local/sbin"  #: where a daemon may be, for a user whose path it is not on


def program(name: str) -> str | None:
    """Return where a program of mosquitto's is, None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=_PATH)


@contextmanager
def broker(*settings: str) -> Iterator[int]:
    """Run a broker that lets everybody in while the context lasts; gives its port. `settings` are lines for its own file."""
    names = ("mosquitto", "mosquitto_pub", "mosquitto_sub", "stdbuf")
    lacking = [name for name in names if program(name) is None]
    if lacking:
        raise NotHereError(f"{lacking[0]} is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headwater-mqtt-") as folder:
        file = Path(folder) / "mosquitto.conf"
        file.write_text("\n".join([f"listener {port} 127.0.0.1", "allow_anonymous true", *settings, ""]))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([str(program("mosquitto")), "-c", str(file)], **quiet) as process:  # type: ignore[call-overload]
            try:
                wait_for(port, process)
                yield port
            finally:
                process.terminate()


def publish(port: int, topic: str, lines: Sequence[str], *, qos: int) -> None:
    """Publish lines; the broker has them when this returns."""
    command = [str(program("mosquitto_pub")), "-p", str(port), "-t", topic, "-q", str(qos), "-l"]
    subprocess.run(command, input="".join(f"{line}\n" for line in lines), text=True, check=True, timeout=_PATIENCE_S)


def subscribe(port: int, name: str, topic: str, *, qos: int) -> None:
    """Have the broker keep what comes for a client of a name from now on, until that `hear`s it."""
    subprocess.run([*_subscriber(port, name, topic, qos), "-c", "-E"], check=True, timeout=_PATIENCE_S)


def hear(port: int, name: str, topic: str, *, qos: int, properties: bool = False) -> list[str]:
    """Return what the broker has kept for a client; it keeps nothing more for it.

    With `properties` each line begins with the message's topic, and what MQTT 5 lets users say of it.
    """
    end = f"the end of what is there for {name}"
    publish(port, topic.removesuffix("/#"), [end], qos=qos)
    form = ["-V", "5", "-x", "3600", "-F", "%t %P %p"] if properties else []
    command = ["stdbuf", "-oL", *_subscriber(port, name, topic, qos), "-c", *form, "-W", str(_PATIENCE_S)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.rstrip("\n").endswith(end):
                break
            lines.append(line.rstrip("\n"))
        process.terminate()
    forget(port, name)
    return lines


def forget(port: int, name: str) -> None:
    """Have the broker keep nothing more for a client, by a connection without a session."""
    subprocess.run([*_subscriber(port, name, "none", 0), "-E"], check=True, timeout=_PATIENCE_S)


def _subscriber(port: int, name: str, topic: str, qos: int) -> list[str]:
    return [str(program("mosquitto_sub")), "-p", str(port), "-i", name, "-t", topic, "-q", str(qos)]
