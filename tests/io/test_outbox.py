"""Parts that wait on disk for a sink behind a network: what a full outbox holds up, and what a disk does to it."""

import errno

import pytest
from holding import check_nothing_else_is_held

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Ledger
from headwater.io.dead import DeadLetterFolder
from headwater.io.transactions import outbox as outboxes
from headwater.io.transactions.outbox import Outbox
from waiting import wait_until

SCHEMA = Schema.of({"n": int})


class Server:
    """The other side, there or not as the test says; it knows parts that it has by their numbers, as databases do."""

    def __init__(self, *, up=True, most_bytes=10**9):
        self.up, self.most_bytes, self.last, self.numbers = up, most_bytes, -1, []

    delivery = "transactional"
    remote = True

    def transaction(self, schema, ledger):
        return Outbox(self, self, ledger, most_bytes=self.most_bytes)

    def open(self, schema):
        raise AssertionError("it is written in parts")

    def deliver(self, name, number, batches):
        if not self.up:
            raise InputError("the server is away")
        if number > self.last:
            self.last = number
            self.numbers += [n for batch in batches for n in batch["n"].tolist()]
        return []

    def close(self):
        pass


def part(outbox, number, *numbers):
    outbox.write(Batch.of({"n": list(numbers)}, SCHEMA))
    outbox.prepare(number)


def ledger(folder, after):
    return Ledger(folder, "test", after)


@pytest.mark.parametrize("again", [False, True])
def test_what_a_disk_fails_at_when_a_part_is_due_is_delivered_with_the_next_and_before_it(tmp_path, monkeypatch, again):
    server = Server()
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    part(outbox, 0, 1, 2)
    with monkeypatch.context() as failing:
        failing.setattr(outboxes, "sync", _fails)
        with pytest.raises(InputError, match="the device fails"):
            outbox.commit(0)
    if again:  # as the end of a run does
        outbox.commit(0)
    part(outbox, 1, 3)
    outbox.commit(1)
    outbox.close()
    assert server.numbers == [1, 2, 3]
    outbox = server.transaction(SCHEMA, ledger(tmp_path, 1))
    outbox.close()
    assert server.numbers == [1, 2, 3]


def _fails(path):
    raise OSError(errno.EIO, "input/output error")


def test_a_part_that_the_disk_has_damaged_is_told_set_aside_and_in_nobodys_way(tmp_path, caplog):
    server = Server(up=False)
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    for number in range(3):
        part(outbox, number, 10 * number, 10 * number + 1)
        outbox.commit(number)
    outbox.close()
    waiting = sorted(tmp_path.glob("*.due"))
    assert len(waiting) == 3
    data = bytearray(waiting[1].read_bytes())
    data[len(data) // 2] ^= 1
    waiting[1].write_bytes(data)
    server.up = True
    outbox = server.transaction(SCHEMA, ledger(tmp_path, 2))
    outbox.close()
    assert server.numbers == [0, 1, 20, 21]
    account = outbox.account()
    assert (account["damaged_parts"], account["forwarded"], account["waiting"]) == (1, 4, 0)
    assert "part 1 for" in caplog.text
    assert "does not hold what was written" in caplog.text
    assert [path.name for path in tmp_path.glob("*.damaged")] == ["000000001.damaged"]
    server.transaction(SCHEMA, ledger(tmp_path, 2)).close()  # and a later run goes on
    assert server.numbers == [0, 1, 20, 21]


def test_a_part_at_which_the_sinks_own_code_breaks_is_set_apart_and_in_nobodys_way(tmp_path, caplog, monkeypatch):
    class Slipping(Server):
        def deliver(self, name, number, batches):
            if number == 1:
                raise TypeError("unsupported operand")
            return super().deliver(name, number, batches)

    monkeypatch.setattr(outboxes, "_FIRST_S", 0.001)
    server = Slipping()
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    for number in range(3):
        part(outbox, number, 10 * number, 10 * number + 1)
        outbox.commit(number)
    wait_until(lambda: server.numbers == [0, 1, 20, 21])
    outbox.close()
    account = outbox.account()
    assert (account["forwarded"], account["refused"], account["waiting"]) == (4, 2, 0)
    assert account["mistakes"] == account["failed_attempts"] == 5
    assert "breaks by its own code, which waiting does not mend: TypeError: unsupported operand" in caplog.text
    assert len(list(DeadLetterFolder(tmp_path / "refused").letters())) == 2


def test_a_last_part_that_is_damaged_does_not_keep_the_next_run_from_going_on(tmp_path):
    server = Server(up=False)
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    part(outbox, 0, 1)
    outbox.commit(0)
    outbox.close()
    (path,) = tmp_path.glob("*.due")
    path.write_bytes(path.read_bytes()[:-3])
    server.up = True
    for _ in range(2):
        server.transaction(SCHEMA, ledger(tmp_path, 0)).close()
    assert server.numbers == []


def test_parts_without_a_record_are_not_kept_while_the_server_is_away(tmp_path):
    server = Server(up=False)
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    for number in range(60):
        part(outbox, number, *([number] if number in (0, 30) else []))
        outbox.commit(number)
    assert [path.stem[-2:] for path in sorted(tmp_path.glob("*.due"))] == ["00", "30", "59"]
    outbox.close()
    part(outbox, 60)  # and a kill comes before its commit
    server.up = True  # before anybody tries: an outbox that has failed at once is closed at once
    again = server.transaction(SCHEMA, ledger(tmp_path, 60))
    assert again.committed == 60
    again.close()
    assert server.numbers == [0, 30]
    assert not [*tmp_path.glob("*.due")]


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_full_outbox_holds_up_neither_another_pipeline_nor_checkpoints(on, tmp_path, caplog):
    server = Server(up=False, most_bytes=300_000)
    read = check_nothing_else_is_held(server, server, tmp_path, caplog, on=on)
    assert server.numbers == read


def test_a_write_looks_at_no_file_however_many_parts_wait(tmp_path, monkeypatch):
    server = Server(up=False)
    outbox = server.transaction(SCHEMA, ledger(tmp_path, -1))
    for number in range(5):
        part(outbox, number, number)
        outbox.commit(number)

    def looked(path, **options):
        raise AssertionError(f"{path} is looked at")

    with monkeypatch.context() as watching:
        watching.setattr(type(tmp_path), "stat", looked)
        outbox.write(Batch.of({"n": [7]}, SCHEMA))
    outbox.close()
