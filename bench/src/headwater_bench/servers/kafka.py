"""A Kafka broker of our own on loopback, from jars that Maven brings (spark/kafka/pom.xml)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from headwater.spark import java
from headwater_bench.servers import NotHereError, free_port, wait_for

JARS = Path(os.environ.get("HEADWATER_KAFKA_JARS") or Path.home() / ".cache" / "headwater" / "kafka")
_PATIENCE_S = 120
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def is_here() -> bool:
    """Say whether there are jars to start one from."""
    return any(JARS.glob("kafka_2*.jar"))


def connector() -> list[Path]:
    """Return the jars by which Spark reads topics; they may not be there."""
    from headwater.spark.sources.kafka import PACKAGES

    return [JARS / "{1}-{2}.jar".format(*package.split(":")) for package in PACKAGES]


def missing() -> str:
    """Say what is missing to fill a topic and to have Spark read it; nothing if it is all there."""
    if not is_here() or not all(jar.exists() for jar in connector()):
        return f"no jars of Kafka in {JARS}"
    return "" if find_spec("confluent_kafka") else "no client of Kafka: pip install 'headwater[kafka]'"


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker while the context lasts; gives its address. It keeps all in a folder."""
    if not is_here():
        raise NotHereError(f"no jars of Kafka in {JARS}")
    port, control = free_port(), free_port()
    settings, said_in = folder / "server.properties", folder / "broker.log"
    settings.write_text(_SETTINGS.format(port=port, control=control, folder=folder))
    command = [str(java.find().home / "bin" / "java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
    cluster = ("format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(settings))
    with said_in.open("wb") as log:
        formatting = [*command, "kafka.tools.StorageTool", *cluster]
        subprocess.run(formatting, check=True, timeout=_PATIENCE_S, stdout=log, stderr=log)
        with subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log) as process:
            try:
                wait_for(port, process, lambda: said_in.read_text()[-2000:])
                yield f"127.0.0.1:{port}"
            finally:
                process.kill()
