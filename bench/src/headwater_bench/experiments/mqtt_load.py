"""Open-loop MQTT load that measures every result: as the broker itself, or as a client of a real one.

Message i is due at i / rate, whatever the system under test does; its latency counts from there.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.errors import RunError
from headwater_bench.experiments.mqtt_kernels import BASE, length_at, messages, results

IN, OUT = "load/a", "load/b"  #: topics to the system under test, and from it
_PATIENCE_S = 60.0
_DRAIN_S = 3.0
_FLYING = 5000  # messages of QoS 1 that are not acknowledged
_STEP_S = 0.0002
_WELCOME = bytes([0x20, 2, 0, 0])


@dataclass(frozen=True)
class Step:
    """What came of one rate."""

    rate: float
    share: float  #: of the results that came
    lost: int  #: results that did not come
    twice: int  #: results that came more than once
    p50_ms: float
    p99_ms: float
    load_cores: float  #: what this program itself took
    lag_ms: float  #: by how much it was late itself, at most

    @property
    def kept(self) -> bool:
        """Whether all came, and in time."""
        return not self.lost and not self.twice and self.p99_ms <= 100.0


class _Link:
    """A connection, with what waits to be sent."""

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
        self.end, self.subscribed, self.welcome = end, False, False
        self._out: deque[memoryview] = deque()
        self._buffer, self._have = np.empty(1 << 20, np.uint8), 0

    def put(self, data: Any) -> None:
        self._out.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        try:
            while self._out:
                nbytes = self.end.send(self._out[0])
                if nbytes == len(self._out[0]):
                    self._out.popleft()
                else:
                    self._out[0] = self._out[0][nbytes:]
        except BlockingIOError:
            return

    def received(self) -> np.ndarray[Any, Any] | None:
        """Return all bytes that wait to be taken, with those that just came; None at the end."""
        if self._have == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.empty_like(self._buffer)])
        try:
            count = self.end.recv_into(self._buffer.data[self._have :])
        except BlockingIOError:
            count = -1
        except OSError:
            count = 0
        if count == 0:
            return None
        self._have += max(count, 0)
        return self._buffer[: self._have]

    def drop(self, count: int) -> None:
        rest = self._buffer[count : self._have].copy()
        self._have = len(rest)
        self._buffer[: self._have] = rest


class Load:
    """Plays messages to a system under test; `lines` hold the number 1400000000000 once each.

    As a broker (`port` 0 takes any) it waits for who subscribes to `load/a` and publishes to `load/b`; with `broker` it
    is a client of that port instead.
    """

    def __init__(self, lines: Sequence[bytes], *, qos: int = 0, broker: int | None = None) -> None:
        self._lines = np.frombuffer(bytearray(b"".join(lines)), np.uint8)
        self._ends = np.cumsum([0] + [len(line) for line in lines])
        self._places = np.array([line.index(str(BASE).encode()) for line in lines])
        self._longest = max(map(len, lines)) + 32
        self._qos, self._topic = qos, np.frombuffer(bytearray(IN.encode()), np.uint8)
        self._links: list[_Link] = []
        self._to: _Link | None = None
        self._next = self._acknowledged = 0
        self._answers = np.empty(1 << 21, np.uint8)
        self._server: socket.socket | None = None
        if broker is None:
            self._server = socket.create_server(("127.0.0.1", 0))
            self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1] if self._server else broker or 0
        self._began = time.monotonic()

    def close(self) -> None:
        """Close everything."""
        for link in self._links:
            link.end.close()
        if self._server is not None:
            self._server.close()

    def join(self) -> None:
        """Become a client of a real broker: one connection hears the results, one publishes."""
        hearing, self._to = self._dial("load-hears"), self._dial("load-says")
        topic = OUT.encode()
        hearing.put(bytes([0x82, 5 + len(topic), 0, 1, 0, len(topic)]) + topic + bytes([self._qos]))
        self._until(lambda: hearing.subscribed, "the broker does not answer")

    def wait_for(self, connections: int) -> None:
        """As a broker: wait until the system under test is there."""
        self._until(
            lambda: len(self._links) >= connections and any(link.subscribed for link in self._links),
            "the system under test did not come",
        )
        self._to = next(link for link in self._links if link.subscribed)

    def await_answer(self) -> None:
        """Send a few messages at a time until all are answered: then everything is connected, compiled and filled."""
        end_s = time.monotonic() + _PATIENCE_S
        while self.step(2000, 0, 0.2).lost:
            if time.monotonic() > end_s:
                raise RunError("the system under test does not answer every message")

    def step(self, rate: float, warm_s: float, seconds: float) -> Step:
        """Offer a rate, and measure those messages that are due after the warm-up."""
        assert self._to is not None
        count, skip = int(rate * (warm_s + seconds)), int(rate * warm_s)
        self._late_s, self._times = np.zeros(count, np.float32), np.zeros(count, np.int64)
        self._first, self._rate, lag_s = self._next, rate, 0.0
        spent, self._began = time.process_time(), time.monotonic()
        last_s, before = 0.0, 0
        while True:
            now_s = time.monotonic() - self._began
            due = min(count, int(now_s * rate))
            more = min(due - (self._next - self._first), max(1, (1 << 20) // self._longest))
            if self._qos:
                more = min(more, _FLYING - (self._next - self._acknowledged))
            if more > 0:
                out = np.empty(more * self._longest, np.uint8)
                size = messages(self._lines, self._ends, self._places, self._topic, self._qos, self._next, more, out)
                self._to.put(out[:size])
                self._next += more
            lag_s = max(lag_s, now_s - (self._next - self._first) / rate) if now_s < count / rate else lag_s
            self._serve(_STEP_S)
            if self._next - self._first == count:
                came = int(np.count_nonzero(self._times))
                if came > before:
                    last_s, before = now_s, came
                if before == count or now_s > max(last_s, count / rate) + _DRAIN_S:
                    break
        cores = (time.process_time() - spent) / (time.monotonic() - self._began)
        late_ms = 1000 * np.sort(self._late_s[skip:][self._times[skip:] > 0])
        p50, p99 = (float(np.percentile(late_ms, at)) for at in (50, 99)) if len(late_ms) else (np.inf, np.inf)
        lost = count - int(np.count_nonzero(self._times))
        return Step(rate, 1 - lost / count, lost, int(np.sum(self._times > 1)), p50, p99, cores, 1000 * lag_s)

    def _dial(self, name: str) -> _Link:
        link = _Link(socket.create_connection(("127.0.0.1", self.port)))
        self._links.append(link)
        body = b"\0\4MQTT\4\2\0\0" + bytes([0, len(name)]) + name.encode()
        link.put(bytes([0x10, len(body)]) + body)
        self._until(lambda: link.welcome, "the broker does not answer")
        return link

    def _until(self, what: Any, complaint: str) -> None:
        self._late_s, self._times, self._first, self._rate = np.zeros(0, np.float32), np.zeros(0, np.int64), 0, 1.0
        end_s = time.monotonic() + _PATIENCE_S
        while not what():
            if time.monotonic() > end_s:
                raise RunError(complaint)
            self._serve(0.01)

    def _serve(self, wait_s: float) -> None:
        """Take what came, answer it, and send what waits."""
        ends = [link.end for link in self._links]
        writing = [link.end for link in self._links if link._out]
        if self._server is not None:
            ends.append(self._server)
        readable, _, _ = select.select(ends, writing, [], wait_s)
        if self._server in readable:
            self._links.append(_Link(self._server.accept()[0]))
        for link in list(self._links):
            if link.end in readable:
                data = link.received()
                if data is None:
                    self._links.remove(link)
                    link.end.close()
                    continue
                self._take(link, data)
            link.flush()

    def _take(self, link: _Link, data: np.ndarray[Any, Any]) -> None:
        at = 0
        while at < len(data):
            now_s = time.monotonic() - self._began
            part = data[at:]
            count, answered, acknowledged, _ = results(
                part, len(part), now_s, self._first, self._rate, self._late_s, self._times, self._answers
            )
            self._acknowledged += acknowledged
            if answered:
                link.put(self._answers[:answered].tobytes())
            at += count
            length, body = length_at(data, at, len(data)) if at < len(data) else (-1, 0)
            if length < 0 or body + length > len(data):
                break
            self._control(link, int(data[at]) >> 4, data[body : body + length].tobytes())
            at = body + length
        link.drop(at)

    def _control(self, link: _Link, kind: int, body: bytes) -> None:
        if kind == 1:
            link.put(_WELCOME)
        elif kind == 2:
            link.welcome = True
        elif kind == 8:
            link.subscribed = True
            link.put(bytes([0x90, 3, *body[:2], body[-1]]))
        elif kind == 9:
            link.subscribed = True
        elif kind == 12:
            link.put(bytes([0xD0, 0]))
