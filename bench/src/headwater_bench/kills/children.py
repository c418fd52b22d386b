"""Processes that are forked from here: some answer a question, some work beside the runs that are killed.

Clients of servers have threads, and whoever forks beside those may find a lock taken for ever. So all that talks to a server
is done in a child, and this process has one thread for good.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


def answer_of(work: Callable[[], Any]) -> Any:
    """Have a child do something, and return its answer, which is plain data."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def answer() -> None:
            data = memoryview(msgspec.msgpack.encode(work()))
            while data:
                data = data[os.write(writing, data) :]

        end_after(answer)
    os.close(writing)
    with open(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "a process that was asked something went wrong: see its traceback"
    return msgspec.msgpack.decode(data)


@contextmanager
def beside(work: Callable[[], None] | None) -> Iterator[Callable[[], bool]]:
    """Have a child do something while the context lasts; gives how to ask whether it is done. It goes on to its end."""
    if work is None:
        yield lambda: True
        return
    child = os.fork()
    if child == 0:
        end_after(work)
    try:
        yield lambda: is_over(child)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    _, status = os.waitpid(child, 0)
    assert status == 0, "who feeds the flow went wrong: see its traceback"


def run_in_child(run: Callable[[], None], error: Path) -> int:
    """Start a run in a child, which writes what goes wrong to a file; return the number of its process."""
    child = os.fork()
    if child == 0:
        logging.disable(logging.WARNING)  # each kill has something to be said about it
        try:
            run()
        except BaseException:
            error.write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    return child


def is_over(child: int, within_s: float = 0.0) -> bool:
    """Wait for a child to end, by itself or by its own hand; return whether it did. It is there until it is waited for."""
    until_s = time.monotonic() + within_s
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.002)
    return True


def end_after(work: Callable[[], None]) -> None:
    """Do something in a process that was forked for it, and end the process."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
