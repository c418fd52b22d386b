"""What lanes that are no more have left for a sink behind a network: it is there, and before what is new of its keys."""

import json
import os
from collections import defaultdict
from functools import partial

import pytest

from headwater import Flow, engine, io
from headwater.data.frames import unpack_frame
from headwater.engine.checkpoint.ledgers import writer_name
from headwater.io import forwarding
from headwater.io.log import Reader
from headwater.io.transactions import notes_of
from kept_flow import add_up

KEYS, OLD, ALL = 13, 400, 800


class Uplink:
    """A sink behind a network, of any number of processes, that takes what it wants to; a file has it in order."""

    remote = apart = in_order = True
    writers = "many"

    def __init__(self, path, takes):
        self._path, self._takes = path, takes

    def open(self, schema):
        return self

    def write(self, batch):
        rows = batch.rows()
        if not all(map(self._takes, rows)):
            raise OSError("no route to host")
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, "".join(json.dumps(row) + "\n" for row in rows).encode())
        os.close(fd)

    def close(self):
        """Nothing is open."""


def summing(path, sink):
    flow = Flow("summing")
    keyed = flow.read("read", io.JsonLines(path, {"key": str, "n": int})).key_by("key")
    keyed.process("sum", add_up, out={"key": str, "n": int, "total": int}).write("up", sink)
    return flow


def add(path, start, stop):
    with path.open("a") as file:
        file.writelines(json.dumps({"key": f"k{n % KEYS}", "n": n}) + "\n" for n in range(start, stop))


def keys_left(checkpoint, lane):
    """Return the keys of what waits in a lane."""
    reader = Reader(notes_of(checkpoint, writer_name("up", 0, 1, lane)) / "forward")
    found = {row["key"] for entry in reader.read() for row in unpack_frame(entry.data).rows()}
    reader.close()
    return found


@pytest.mark.parametrize("after", [1, 3])
def test_what_a_lane_has_left_is_there_before_what_is_new_of_its_keys(tmp_path, monkeypatch, after):
    # for so long a run waits at its end for who takes nothing
    monkeypatch.setattr(forwarding, "forward", partial(forwarding.forward, linger="1 s"))
    path, taken, checkpoint = tmp_path / "in.jsonl", tmp_path / "taken.jsonl", tmp_path / "checkpoint"
    add(path, 0, OLD)
    engine.run(summing(path, Uplink(taken, lambda row: False)), lanes=2, checkpoint=checkpoint)
    left = keys_left(checkpoint, 1)
    assert 0 < len(left) < KEYS
    assert not taken.exists()
    add(path, OLD, ALL)
    refused = tmp_path / "refused"  # at first, none of what the second lane has left is taken, by whichever process
    refused.touch()

    def takes(row):
        if row["key"] not in left or row["n"] >= OLD or refused.stat().st_size:
            return True
        with refused.open("a") as file:
            file.write(".")
        return False

    while not taken.exists() or len(taken.read_text().splitlines()) < ALL:  # what is left waits for the next run
        engine.run(
            summing(path, Uplink(taken, takes)), checkpoint=checkpoint, **({"lanes": after} if after > 1 else {})
        )
    by_key = defaultdict(list)
    for line in taken.read_text().splitlines():
        row = json.loads(line)
        by_key[row["key"]].append(row["n"])
    assert by_key == {f"k{key}": list(range(key, ALL, KEYS)) for key in range(KEYS)}
