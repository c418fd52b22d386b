"""A real MQTT broker in this process, on a port of its own, that can be stopped and started again."""

import asyncio
import logging
import socket
import threading
import warnings
from contextlib import suppress
from unittest.mock import patch

from ports import free_port
from waiting import PATIENCE_S


class Broker:
    """Runs amqtt in a thread; every wait has an end."""

    def __init__(self, *, passwords=None, certificate=None):
        self.port = free_port()
        self._passwords, self._certificate = passwords, certificate
        self._thread = None

    @property
    def url(self):
        scheme = "mqtts" if self._certificate else "mqtt"
        return f"{scheme}://127.0.0.1:{self.port}"

    def start(self):
        ready, self._failed = threading.Event(), None
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_S), "the test broker did not start"
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self):
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "the test broker did not stop"
            self._thread = None

    def _run(self, ready):
        self._servers, self._writers = [], []
        self._loop = asyncio.new_event_loop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._loop.run_until_complete(self._serve(ready))
            self._loop.close()

    async def _serve(self, ready):
        from amqtt.broker import Broker as Amqtt

        self._stopping = asyncio.Event()
        try:
            with patch("asyncio.start_server", self._start_server):
                await Amqtt(self._settings()).start()
        except Exception as error:
            self._failed = error
            return
        finally:
            ready.set()
        await self._stopping.wait()
        await self._break_down()

    async def _start_server(self, connected, *args, _start=asyncio.start_server, **kwargs):
        """Remember what is opened, since amqtt's own shutdown may wait for its clients for ever."""

        async def remembered(reader, writer):
            self._writers.append(writer)
            await connected(reader, writer)

        self._servers.append(await _start(remembered, *args, **kwargs))
        return self._servers[-1]

    async def _break_down(self):
        """Stop as a crash would: nobody is told."""
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=2)

    def _settings(self):
        listener = {"type": "tcp", "bind": f"127.0.0.1:{self.port}", "max_connections": 20}
        if self._certificate:
            listener |= {
                "ssl": True,
                "certfile": str(self._certificate.pem),
                "keyfile": str(self._certificate.key),
            }
        if self._passwords:
            plugins = {"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(self._passwords)}}
        else:
            # any user without a password; for nameless clients this broker would keep no session
            plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}}
        return {"listeners": {"default": listener}, "plugins": plugins}


for noisy in ("amqtt", "transitions"):
    logging.getLogger(noisy).setLevel(logging.CRITICAL)


class Link:
    """A way to a broker that can be cut and mended: a port that forwards bytes to the broker's."""

    def __init__(self, port):
        self._to = port
        self._pairs = []
        self._lock = threading.Lock()
        self._server = None
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def mend(self):
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()
        return self

    def cut(self):
        server, self._server = self._server, None
        if server is not None:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for end in pairs:
            _close(end)

    def _accept(self, server):
        while True:
            try:
                near, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            with self._lock:
                self._pairs += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=_forward, args=(a, b), daemon=True).start()


def _forward(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    _close(source)
    _close(target)


def _close(end):
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class ScriptedBroker:
    """Speaks just enough MQTT 3.1.1 to send what a test says and to remember what was acknowledged."""

    def __init__(self):
        self.session_kept = False
        self.subscriptions = 0
        self.acknowledged = []
        self._client = None
        self._port = free_port()
        self.start()

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self._port}"

    def start(self):
        self._server = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def stop(self):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if self._client is not None:
            _close(self._client)

    def publish(self, topic, payload, mid, *, again=False):
        name = topic.encode()
        body = len(name).to_bytes(2) + name + mid.to_bytes(2) + payload
        assert len(body) < 128
        self._client.sendall(bytes([0x32 | (0x08 if again else 0), len(body)]) + body)

    def _accept(self, server):
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            self._client = client
            with suppress(OSError), client.makefile("rb") as stream:
                while head := stream.read(2):
                    self._answer(client, head[0] >> 4, stream.read(head[1]))

    def _answer(self, client, kind, body):
        if kind == 1:  # connect
            client.sendall(bytes([0x20, 2, self.session_kept, 0]))
        elif kind == 8:  # subscribe
            self.subscriptions += 1
            client.sendall(bytes([0x90, 3, *body[:2], 1]))
        elif kind == 4:  # acknowledged
            self.acknowledged.append(int.from_bytes(body))
        elif kind == 12:  # ping
            client.sendall(bytes([0xD0, 0]))
