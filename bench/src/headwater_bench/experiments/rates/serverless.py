"""Best-effort serverless, as Storm-Serverless has it: each step a function, each invocation a call into a process of a pool.

A function's first process is forked from a warm one. An alert, a function whose oldest batch has waited too long, starts one
more, cold: a new interpreter with all imports, which is what such platforms do. Functions with state by key, or with
memory of their own, have one process, where their state is. Nobody has a priority, and nothing is reserved.

Left to itself it has the whole machine from the beginning. In `containers`, as in a cluster, all processes together have a
fifth more than the first rate needs, and with every further one as much more as each of the first has of that.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headwater.cores import whole_cores
from headwater.data.batch import NO_WATERMARK, Batch, concat_batches
from headwater.data.frames import pack, unpack_frame
from headwater.engine.warm import load_kernels
from headwater.operators import build
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.queue import Delivery
from headwater.operators.task import Task
from headwater_bench.experiments.rates.lap import Lap
from headwater_bench.experiments.rates.loads import INSTANCES, Judge, Offered, flow_of
from headwater_bench.experiments.rates.quota import Containers

_TICK_S = 0.01  #: how long the collector lets messages gather
_BATCH = 4096  #: records of one invocation, at most
_SERVED = ("parse", "annotate")  #: operators without memory of what came before, which may have several processes


class Serverless:
    """A flow as functions; the collector, the queues and the sinks are here."""

    def __init__(self, lap: Lap, source: Offered, judge: Judge) -> None:
        self._alert_s = float(lap.settings.get("alert_s", 0.1))
        self._most = int(lap.settings.get("most", 2 * whole_cores()))
        self._every_s = float(lap.settings.get("interval_s", 1.0))
        self._lap, self._done = lap, threading.Event()
        self._containers = Containers() if lap.settings.get("containers") else None  # before there are processes
        self._graph, self._tasks = _tasks(lap.flow, source, judge)
        load_kernels(self._graph)
        self._functions = {
            at: _Function(at)
            for at, task in enumerate(self._tasks)
            if task.operator is not None and not _is_local(task)
        }
        for function in self._functions.values():
            function.processes.append(self._process("fork", function.at))
        self._cold = 0
        for function in self._functions.values():
            self._serve(function, function.processes[0])
        for target in (self._collect, self._watch):
            threading.Thread(target=target, args=() if target == self._watch else (source,), daemon=True).start()

    def used_s(self) -> float:
        """Return the time of this process and of those of all functions."""
        ticks = os.sysconf("SC_CLK_TCK")
        total = time.process_time()
        for function in self._functions.values():
            for process in function.processes:
                with suppress(OSError):
                    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                    total += (int(fields[11]) + int(fields[12])) / ticks
        return total

    def account(self) -> dict[str, Any]:
        """Return how many processes there are, and how many of them began cold."""
        processes = sum(len(function.processes) for function in self._functions.values())
        settings = {"alert_s": self._alert_s, "interval_s": self._every_s}
        container = 0.0 if self._containers is None else self._containers.cores
        account = {"processes": processes, "cold_starts": self._cold, "settings": settings}
        return account | {"container_cores": round(container, 3)}

    def abort(self) -> None:
        """End at once."""
        self._done.set()
        for function in self._functions.values():
            for process in function.processes:
                process.end()

    # -- invocations ----------------------------------------------------------------------------------------------------

    def _process(self, how: str, at: int) -> _Process:
        ours, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context(how)
        process = context.Process(target=serve, args=(theirs, self._lap.flow, at), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)

    def _serve(self, function: _Function, process: _Process) -> None:
        threading.Thread(target=self._invoke, args=(function, process), daemon=True).start()

    def _invoke(self, function: _Function, process: _Process) -> None:
        """Call one process with what waits for its function, again and again."""
        with suppress(EOFError, OSError):
            while not self._done.is_set():
                waiting = function.take()
                if waiting is None:
                    continue
                channel, batch = waiting
                process.line.send_bytes(msgspec.msgpack.encode(channel) + pack(batch))
                count = int.from_bytes(process.line.recv_bytes(), "little")
                for _ in range(count):
                    data = process.line.recv_bytes()
                    to, channel = np.frombuffer(data[:8], np.int32).tolist()
                    self._put(to, channel, unpack_frame(data[8:]))

    def _put(self, to: int, channel: int, batch: Batch) -> None:
        if to in self._functions:
            self._functions[to].put(channel, batch)
            return
        task = self._tasks[to]
        with task_lock:
            task.run([Delivery(to, channel, batch, NO_WATERMARK, batch.length).entry(time.perf_counter_ns(), 0)])

    def _collect(self, source: Offered) -> None:
        """Collect messages for a tick, and hand them to the functions that read them."""
        first = next(task for task in self._tasks if task.operator is None)
        reader = source.open(lambda text, error: None)
        while not self._done.is_set():
            time.sleep(_TICK_S)
            while (batch := reader.read(_BATCH, 0.0)) is not None and batch.length:
                for delivery in first.emit(batch):
                    if delivery.batch is not None:
                        self._put(delivery.to, delivery.channel, delivery.batch)

    def _watch(self) -> None:
        """Start one more process, cold, for each function that is behind."""
        if self._containers is not None:
            self._containers.size(self.used_s, self._done)
        while not self._done.wait(self._every_s):
            for at, function in self._functions.items():
                has_memory = not _is_stateless(self._tasks[at])
                if function.age_s() > self._alert_s and len(function.processes) < self._most and not has_memory:
                    process = self._process("spawn", at)
                    function.processes.append(process)
                    self._cold += 1
                    self._serve(function, process)
            if self._containers is not None:
                first = len(self._functions)
                self._containers.allow((first + self._cold) / first)


class _Function:
    """The batches that wait for a step, and the processes that serve it."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.processes: list[_Process] = []
        self._waiting: deque[tuple[int, Batch, float]] = deque()
        self._news = threading.Condition()

    def put(self, channel: int, batch: Batch) -> None:
        with self._news:
            self._waiting.append((channel, batch, time.monotonic()))
            self._news.notify()

    def take(self) -> tuple[int, Batch] | None:
        """Return what waits of one channel, up to what one invocation takes; None after a while without any."""
        with self._news:
            if not self._waiting:
                self._news.wait(0.1)
            if not self._waiting:
                return None
            channel, batch, _ = self._waiting.popleft()
            batches, count = [batch], batch.length
            while self._waiting and self._waiting[0][0] == channel and count + self._waiting[0][1].length <= _BATCH:
                batches.append(self._waiting.popleft()[1])
                count += batches[-1].length
        return channel, concat_batches(batches)

    def age_s(self) -> float:
        with self._news:
            return time.monotonic() - self._waiting[0][2] if self._waiting else 0.0


class _Process:
    def __init__(self, process: Any, line: Connection) -> None:
        self._process, self.line = process, line
        self.pid: int = process.pid

    def end(self) -> None:
        self._process.kill()


task_lock = threading.Lock()  #: one invoker at a time writes to the sinks


def _tasks(name: str, source: Offered, judge: Judge) -> tuple[ExecutionGraph, list[Task]]:
    flow = flow_of(name, source, judge, dict.fromkeys(INSTANCES[name], 1))
    graph = ExecutionGraph.of(flow)
    return graph, [Task(each, None if each.step.is_source else build(each.step)) for each in graph.instances]


def _is_local(task: Task) -> bool:
    return task.instance.step.is_sink or task.name == "dead letters"


def _is_stateless(task: Task) -> bool:
    return task.name in _SERVED or getattr(task.instance.step.kind, "stateless", False) is True


def serve(line: Connection, name: str, at: int) -> None:
    """Be a process of one function until nobody calls any more."""
    graph, tasks = _tasks(name, Offered([(0.0, 1.0)]), Judge())
    load_kernels(graph)
    task = tasks[at]
    with suppress(EOFError, OSError):
        while True:
            data = line.recv_bytes()
            batch = unpack_frame(data[1:])
            entry = Delivery(at, data[0], batch, NO_WATERMARK, batch.length).entry(time.perf_counter_ns(), 0)
            deliveries = [each for each in task.run([entry])[0] if each.batch is not None]
            line.send_bytes(len(deliveries).to_bytes(4, "little"))
            for each in deliveries:
                assert each.batch is not None
                line.send_bytes(np.array([each.to, each.channel], np.int32).tobytes() + pack(each.batch))
