"""A Kafka broker of our own on loopback, from jars that Maven brings (spark/kafka/pom.xml)."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from headwater.spark import java
from ports import free_port

JARS = Path(os.environ.get("HEADWATER_KAFKA_JARS") or Path.home() / ".cache" / "headwater" / "kafka")
PATIENCE_S = 120
SETTINGS = """
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


@contextmanager
def broker(folder):
    """Run a broker while the context lasts; gives its address."""
    port, control = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(port=port, control=control, folder=folder))
    command = [java.find().home / "bin" / "java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
    with (folder / "broker.log").open("wb") as said:
        given = {"stdout": said, "stderr": said}
        formatting = [*command, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", settings]
        subprocess.run(formatting, check=True, timeout=PATIENCE_S, **given)
        with subprocess.Popen([*command, "kafka.Kafka", settings], **given) as process:
            try:
                wait_for(process, port, folder / "broker.log")
                yield f"127.0.0.1:{port}"
            finally:
                process.kill()


def wait_for(process, port, said):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, said.read_text()[-2000:]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the broker does not answer")
