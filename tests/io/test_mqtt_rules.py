"""What MQTT asks of a client when things go wrong, against a broker that does as the test says."""

import random
import socket
import time
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread

import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import Mqtt
from headwater.io.mqtt import packets
from headwater.io.mqtt.reasons import reason
from waiting import PATIENCE_S, wait_until

SCHEMA = Schema.of({"n": int})


class Script:
    """A broker whose every word is the test's: what it hears is (first byte, body), one by one."""

    def __init__(self, version):
        self.version = version
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self._arrived, self._client, self._heard, self._clients = Queue(), None, Queue(), []
        Thread(target=self._accept, daemon=True).start()

    def let_in(self, *, session_kept=False, said=b""):
        """Take the next connection and welcome it; return its CONNECT."""
        body = self.take()
        tail = packets.number(len(said)) + said if self.version == 5 else b""
        self.say(0x20, bytes([session_kept, 0]) + tail)
        return body

    def take(self):
        """Take the next connection; return its CONNECT."""
        while True:
            self._client = self._arrived.get(timeout=PATIENCE_S)
            self._heard = Queue()
            Thread(target=self._hear, args=(self._client, self._heard), daemon=True).start()
            with suppress(Empty):
                first, body = self._heard.get(timeout=PATIENCE_S)
                break
        assert first == 0x10
        return body

    def say(self, first, body=b""):
        self._client.sendall(packets.packet(first, body))

    def publish(self, number, payload, first=0x32):
        tail = b"\0" if self.version == 5 else b""
        self.say(first, packets.text("t") + number.to_bytes(2) + tail + payload)

    def hear(self):
        return self._heard.get(timeout=PATIENCE_S)

    def hears_nothing(self, seconds=0.1):
        with pytest.raises(Empty):
            self._heard.get(timeout=seconds)

    def cut(self):
        self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def stop(self):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                self._clients.append(self._server.accept()[0])
                self._arrived.put(self._clients[-1])

    def _hear(self, client, heard):
        with suppress(OSError, ValueError), client.makefile("rb") as stream:
            while first := stream.read(1):
                length, shift = 0, 0
                while True:
                    byte = stream.read(1)[0]
                    length |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                heard.put((first[0], stream.read(length)))


@pytest.fixture(params=["3.1.1", "5"])
def script(request):
    script = Script(5 if request.param == "5" else 4)
    yield script
    script.stop()


@pytest.fixture
def opened(script):
    everything = []

    def open_one(given, **options):
        schema = None if isinstance(given, Schema) else SCHEMA
        version = "5" if script.version == 5 else "3.1.1"
        options = {"retry": "20 ms", "patience": "20 ms", "client_id": "c", "version": version} | options
        everything.append(Mqtt(script.url, "t", schema, **options).open(given))
        return everything[-1]

    yield open_one
    script.stop()
    for endpoint in everything:
        with suppress(InputError):
            endpoint.close()


def subscribed(script):
    first, body = script.hear()
    assert first == 0x82
    script.say(0x90, body[:2] + (b"\0" if script.version == 5 else b"") + bytes([body[-1]]))


def begun(script):
    """Let a writer in that keeps its session: in MQTT 3.1.1 it first comes to have an old one forgotten."""
    if script.version == 4:
        script.let_in()
        assert script.hear() == (0xE0, b"")
    script.let_in()


def read(reader, number):
    rows, end = [], time.monotonic() + PATIENCE_S
    while len(rows) < number and time.monotonic() < end:
        rows += [row["n"] for row in reader.read(10, 0.05).rows()]
    return rows


def numbers(*values):
    return Batch.of({"n": list(values)}, SCHEMA)


def number_of(body):
    return int.from_bytes(body[3:5])


def test_qos_2_is_read_once_though_it_is_sent_twice(script, opened):
    reader = opened(pytest.fail, qos=2)
    script.let_in()
    subscribed(script)
    script.publish(7, b'{"n": 1}', first=0x34)
    assert read(reader, 1) == [1]
    reader.read(1, 0)
    assert script.hear() == (0x50, b"\0\7")
    script.cut()  # before PUBREL: the broker cannot know
    script.let_in(session_kept=True)
    script.publish(7, b'{"n": 1}', first=0x3C)
    assert script.hear() == (0x50, b"\0\7")
    script.say(0x62, b"\0\7")
    assert script.hear() == (0x70, b"\0\7")
    script.publish(7, b'{"n": 2}', first=0x34)  # the number is free again
    assert read(reader, 1) == [2]


def test_nothing_is_acknowledged_before_it_is_committed(script, opened):
    reader = opened(pytest.fail, qos=1)
    reader.commit(reader.position)
    script.let_in()
    subscribed(script)
    for number in (1, 2, 3):
        script.publish(number, b'{"n": %d}' % number)
    assert read(reader, 3) == [1, 2, 3]
    script.hears_nothing()
    reader.commit(2)
    assert [script.hear(), script.hear()] == [(0x40, b"\0\1"), (0x40, b"\0\2")]
    script.hears_nothing(0.05)
    reader.close()
    assert script.hear()[0] == 0xE0


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_answered_goes_again_marked_and_before_the_rest(script, opened, qos):
    writer = opened(SCHEMA, qos=qos)
    begun(script)
    writer.write(numbers(1, 2, 3))
    sent = [script.hear() for _ in range(3)]
    assert [(first, number_of(body)) for first, body in sent] == [(0x30 | qos << 1, n) for n in (1, 2, 3)]
    script.say(0x40 if qos == 1 else 0x50, b"\0\1")
    if qos == 2:
        assert script.hear() == (0x62, b"\0\1")
    script.cut()
    wait_until(lambda: not writer._connection.connected.is_set())
    writer.write(numbers(4))
    script.let_in(session_kept=True)
    if qos == 2:
        assert script.hear() == (0x62, b"\0\1")  # what the broker has is not published a second time
    again = [script.hear() for _ in range(3)]
    flags = 0x30 | qos << 1
    assert [(first, number_of(body)) for first, body in again] == [(flags | 8, 2), (flags | 8, 3), (flags, 4)]
    assert [body[-1:] for _, body in again] == [b"}"] * 3
    if qos == 2:
        for number in (2, 3, 4):
            script.say(0x50, number.to_bytes(2))
        assert [script.hear()[0] for _ in range(3)] == [0x62] * 3
    for number in (1, 2, 3, 4) if qos == 2 else (2, 3, 4):
        script.say(0x40 if qos == 1 else 0x70, number.to_bytes(2))
    wait_until(lambda: writer.waiting == 0)


def test_a_broker_that_lost_the_session_gets_everything_anew(script, opened):
    writer = opened(SCHEMA, qos=1)
    begun(script)
    writer.write(numbers(1, 2))
    assert [script.hear()[0] for _ in range(2)] == [0x32, 0x32]
    script.cut()
    script.let_in(session_kept=False)
    assert [script.hear()[0] for _ in range(2)] == [0x32, 0x32]


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_no_more_messages_fly_than_the_broker_wants(script, opened):
    writer = opened(SCHEMA, qos=1, client_id=None)
    script.let_in(said=b"\x21\x00\x02")
    writer.write(numbers(*range(5)))
    for number in range(1, 5, 2):
        assert [number_of(script.hear()[1]) for _ in range(2)] == [number, number + 1]
        script.hears_nothing(0.05)
        script.say(0x40, (number + 1).to_bytes(2))
        script.say(0x40, number.to_bytes(2))
    assert number_of(script.hear()[1]) == 5


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_a_broker_that_leaves_says_why(script, opened, caplog):
    reader = opened(pytest.fail, qos=1)
    script.let_in()
    subscribed(script)
    script.say(0xE0, b"\x8e")
    script.let_in(session_kept=True)
    wait_until(reader._connection.connected.is_set)
    assert "the broker left: another client came with the same client id; trying again" in caplog.text


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_a_message_that_the_broker_will_not_have_is_told(script, opened):
    writer = opened(SCHEMA, qos=1, client_id=None)
    script.let_in()
    writer.write(numbers(1, 2))
    script.say(0x40, b"\0\1\x87")
    script.say(0x40, b"\0\2")
    wait_until(lambda: writer.waiting == 0)
    with pytest.raises(InputError, match=r"the broker would not have 1 records .*Not authorized") as told:
        writer.close()
    assert told.value.records == 1


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_numbers_that_the_broker_knows_or_has_forgotten_after_a_cut_are_no_refusals(script, opened):
    """So do EMQX and HiveMQ answer what is sent again: PUBREC 0x91 where it had arrived, PUBCOMP 0x92 where it was done."""
    writer = opened(SCHEMA, qos=2)
    script.let_in()
    writer.write(numbers(1, 2))
    assert [script.hear()[0] for _ in range(2)] == [0x34, 0x34]
    script.say(0x50, b"\0\1")
    assert script.hear() == (0x62, b"\0\1")
    script.cut()
    script.let_in(session_kept=True)
    assert [script.hear()[0] for _ in range(2)] == [0x62, 0x3C]
    script.say(0x70, b"\0\1\x92")
    script.say(0x50, b"\0\2\x91")
    assert script.hear() == (0x62, b"\0\2")
    script.say(0x70, b"\0\2")
    wait_until(lambda: writer.waiting == 0)
    writer.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            b"\1",
            r"refuses the connection: it does not speak this version of MQTT; version is '3\.1\.1' unless it is given",
        ),
        (b"\2", r"refuses the connection: it does not take this client id$"),
        (b"\5", r"refuses the connection: Not authorized; are user and password right"),
    ],
)
def test_a_broker_of_mqtt_3_that_is_asked_in_mqtt_5_is_understood(script, opened, code, told):
    reader = opened(pytest.fail)
    script.take()
    script.say(0x20, b"\0" + code)
    wait_until(lambda: reader._connection.refused)
    with pytest.raises(InputError, match=told):
        reader.read(1, 0)


def test_what_a_broker_says_is_on_one_line_and_nothing_that_a_terminal_obeys():
    said = packets.text("\x1b[2Jgone\nerror: forged")
    properties = packets.number(len(said) + 1) + b"\x1f" + said
    words = [packets.welcome(b"\0\x87" + properties, 5).reason_text, packets.farewell(b"\x8b" + properties)]
    assert all(r"\x1b[2Jgone\nerror: forged" in each for each in words)


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_records_that_a_broker_does_not_get_since_it_refuses_us_are_told_with_its_reason(script, opened):
    writer = opened(SCHEMA, qos=0, patience="1 h")
    script.take()
    writer.write(numbers(1))
    script.say(0x20, b"\0\x87\0")
    with pytest.raises(
        InputError, match=r"1 records were not delivered .*: the broker refuses the connection: Not authorized"
    ):
        writer.close()


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_every_reason_that_mqtt_5_has_to_refuse_a_client_is_told_in_words(script, opened):
    reader = opened(pytest.fail)
    script.take()
    script.say(0x20, b"\0\x8a" + b"\x08\x1f\x00\x05spam!")
    wait_until(lambda: reader._connection.refused)
    with pytest.raises(InputError, match=r"refuses the connection: Banned \(spam!\)"):
        reader.read(1, 0)
    for code in range(0x80, 0xA3):
        assert "0x" not in reason(code)


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_a_broker_that_keeps_the_session_for_less_says_so_once(script, opened, caplog):
    reader = opened(pytest.fail, qos=1, session="60 s")
    script.let_in(said=b"\x11\x00\x00\x00\x0a")
    subscribed(script)
    script.cut()
    script.let_in(said=b"\x11\x00\x00\x00\x0a")
    subscribed(script)
    assert reader.subscribed.wait(PATIENCE_S)
    assert caplog.text.count("keeps our session for 10 s, not 60") == 1


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_a_broker_that_serves_less_is_told_apart(script, opened):
    writer = opened(SCHEMA, qos=1, client_id=None)
    script.let_in(said=b"\x24\x00")
    wait_until(lambda: writer._connection.refused)
    with pytest.raises(InputError, match="it takes QoS 0 at most"):
        writer.write(numbers(1))


@pytest.mark.parametrize("script", ["5"], indirect=True)
def test_a_message_that_waits_and_is_too_large_for_the_broker_is_told(script, opened):
    writer = opened(Schema.of({"text": str}), payload="text", client_id=None)
    writer.write(Batch.of({"text": ["x" * 100]}, Schema.of({"text": str})))
    script.let_in(said=b"\x27\x00\x00\x00\x32")
    wait_until(lambda: writer._connection.refused)
    with pytest.raises(InputError, match="it takes messages of 50 bytes at most, and one of 106 bytes waits for it"):
        writer.flush()


def test_pauses_between_attempts_grow_however_long_an_attempt_takes(script, opened, monkeypatch):
    """A host that does not answer takes 5 s to be given up, which once counted as a connection that had lasted."""
    pauses = Queue()

    def noted(before_s, first_s, lived_s):
        pauses.put((before_s, lived_s > 0))
        monkeypatch.setattr("headwater.io.mqtt.connection._DIAL_S", PATIENCE_S)
        return before_s + 0.001

    monkeypatch.setattr("headwater.io.mqtt.connection.next_pause_s", noted)
    monkeypatch.setattr("headwater.io.mqtt.connection._DIAL_S", 0.05)
    opened(pytest.fail)
    script.take()  # and never says a word
    assert pauses.get(timeout=PATIENCE_S) == (0, False)
    script.let_in()
    subscribed(script)
    script.cut()
    assert pauses.get(timeout=PATIENCE_S) == (0.001, True)


def test_a_broken_packet_ends_the_connection_and_it_comes_back(script, opened, caplog):
    reader = opened(pytest.fail, qos=1)
    script.let_in()
    subscribed(script)
    script.publish(1, b'{"n": 1}')
    script.publish(2, b'{"n": 2}', first=0x36)
    script.let_in(session_kept=True)
    assert read(reader, 1) == [1]
    assert "is lost: the broker sent a message of QoS 3; trying again" in caplog.text


@pytest.mark.parametrize("script", ["5"], indirect=True)
@pytest.mark.parametrize("said", [b"\x05", b"\x05\x1f\x00\x09ab", b"\x02\x99\x00", b"\xff\xff\xff\xff"])
def test_an_answer_that_cannot_be_read_does_not_end_it_for_good(script, opened, said, caplog):
    reader = opened(pytest.fail, qos=1)
    script.take()
    script.say(0x20, b"\0\0" + said)
    script.let_in()
    subscribed(script)
    script.publish(1, b'{"n": 1}')
    assert read(reader, 1) == [1]
    assert "is lost: " in caplog.text


def test_what_comes_before_we_are_let_in_or_a_second_time_ends_the_connection(script, opened, caplog):
    """A second welcome would have had what is half sent begin anew, in the middle of a packet."""
    reader = opened(pytest.fail, qos=1)
    script.take()
    script.publish(1, b'{"n": 1}')
    script.take()
    script.say(0x90, b"\0\1" + (b"\0" if script.version == 5 else b"") + b"\1")
    script.let_in()
    subscribed(script)
    script.say(0x20, b"\0\0" + (b"\0" if script.version == 5 else b""))
    script.let_in(session_kept=True)
    script.publish(2, b'{"n": 2}')
    assert read(reader, 1) == [2]
    assert "messages before it let us in" in caplog.text


def strange(chance, version):
    """Return packets that a broker may send, of which some have been tampered with."""
    said = b"\0" if version == 5 else b""
    sound = [
        packets.packet(0x34, packets.text("t") + chance.randbytes(2) + said + b'{"n": 1}'),
        packets.packet(0x30, packets.text("t") + said + b'{"n": 2}'),
        packets.packet(0x62, chance.randbytes(2)),
        packets.packet(0x90, b"\0\1" + said + b"\2"),
        packets.packet(0xD0, b""),
        packets.packet(0x20, b"\0\0" + said),
        packets.packet(0xE0, b"\x8b\x05\x1f\x00\x02no"),
        packets.packet(chance.randrange(256), chance.randbytes(chance.randrange(30))),
    ]
    data = bytearray(b"".join(chance.choices(sound, k=6)))
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(1, len(data) + 1)])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_broker_sends_the_connection_comes_back(script, opened, monkeypatch, seed):
    monkeypatch.setattr("headwater.io.mqtt.connection.next_pause_s", lambda *given: 0.0)
    chance = random.Random(seed)
    reader = opened(lambda *rejected: None, qos=2, largest=10_000)
    for _ in range(60):
        script.let_in(session_kept=chance.random() < 0.5)
        with suppress(OSError):
            script._client.sendall(strange(chance, script.version))
        with suppress(InputError):
            reader.read(100, 0.001)
        with suppress(OSError):
            script.cut()
    script.let_in()
    subscribed(script)
    while reader.waiting:
        reader.read(100, 0)
    script.publish(7, b'{"n": 7}', first=0x34)
    assert read(reader, 1) == [7]
    assert reader._connection.broken is None


def test_a_broker_that_closes_amid_a_packet_costs_nothing(script, opened):
    reader = opened(pytest.fail, qos=1)
    script.let_in()
    subscribed(script)
    whole = packets.packet(0x32, packets.text("t") + b"\0\1" + (b"\0" if script.version == 5 else b"") + b'{"n": 1}')
    for cut in range(1, len(whole), 3):
        script._client.sendall(whole[:cut])
        script.cut()
        script.let_in(session_kept=True)
    script._client.sendall(whole)
    assert read(reader, 1) == [1]


def test_a_packet_that_is_too_large_is_not_waited_for(script, opened, caplog):
    opened(pytest.fail, qos=0, largest=1000)
    script.let_in()
    subscribed(script)
    script._client.sendall(b"\x30\xff\xff\xff\x7f")
    script.let_in()
    assert "a packet larger than the largest" in caplog.text


def test_a_topic_that_may_not_be_read_is_one_clear_error(script, opened):
    reader = opened(pytest.fail)
    script.let_in()
    _, body = script.hear()
    script.say(0x90, body[:2] + (b"\0\x87" if script.version == 5 else b"\x80"))
    wait_until(lambda: reader._connection.refused)
    with pytest.raises(InputError, match="topic 't' may not be read"):
        reader.read(1, 0)


def test_a_silent_broker_is_pinged_and_then_given_up(script, opened, caplog, monkeypatch):
    monkeypatch.setattr("headwater.io.mqtt.endpoint._KEEP_ALIVE_S", 1)
    opened(pytest.fail)
    script.let_in()
    subscribed(script)
    assert script.hear() == (0xC0, b"")
    script.say(0xD0)
    assert script.hear() == (0xC0, b"")
    script.let_in()
    assert "the broker does not answer" in caplog.text


def test_a_reader_that_is_full_stays_connected(script, opened, monkeypatch):
    monkeypatch.setattr("headwater.io.mqtt.endpoint._KEEP_ALIVE_S", 1)
    reader = opened(pytest.fail, qos=1, buffer=2)
    script.let_in()
    subscribed(script)
    for number in range(1, 5):
        script.publish(number, b'{"n": %d}' % number)
    wait_until(lambda: reader.waiting == 2)
    assert [script.hear()[0] for _ in range(3)] == [0xC0] * 3
    assert reader._connection.connected.is_set()
    assert read(reader, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize("qos", [0, 1])
def test_large_messages_wait_in_no_more_than_the_bytes_that_they_may_take(script, opened, qos):
    """A hundred thousand pictures would be more than a device has."""
    reader = opened(pytest.fail, qos=qos, buffer_bytes=2000)
    script.let_in()
    subscribed(script)
    wait_until(reader._connection.connected.is_set)
    for number in range(1, 11):
        body = b'{"n": %d, "picture": "%s"}' % (number, b"x" * 900)
        tail = b"\0" if script.version == 5 else b""
        script.say(0x30 | qos << 1, packets.text("t") + (number.to_bytes(2) if qos else b"") + tail + body)
        wait_until(lambda: reader.waiting + reader.dropped == min(number, 3 if qos else 10))  # noqa: B023
    assert reader.waiting == 3
    assert reader.dropped == (0 if qos else 7)
    assert read(reader, 10 if qos else 3) == list(range(1, 11 if qos else 4))
    assert reader._inbox.waiting_bytes == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_large_records_wait_for_the_broker_in_no_more_than_the_bytes_that_they_may_take(script, opened, qos):
    texts = Schema.of({"text": str})

    def written(writer, size):
        writer.write(Batch.of({"text": ["x" * size]}, texts))

    writer = opened(texts, qos=qos, payload="text", client_id=None, buffer_bytes=2000)
    written(writer, 3000)  # one that is larger than all room goes by itself
    with pytest.raises(InputError, match=r"1 records wait for the broker already, 3,0.. bytes; is it running"):
        written(writer, 10)
    script.let_in()
    script.hear()
    if qos:
        script.say(0x40, b"\0\1")
    wait_until(lambda: writer.waiting == 0)
    assert writer._outbox.waiting_bytes == 0
    script.cut()
    wait_until(lambda: not writer._connection.connected.is_set())
    written(writer, 900)
    written(writer, 900)
    with pytest.raises(InputError, match=r"2 records wait for the broker already, 1,8.. bytes"):
        written(writer, 900)


def test_a_broker_that_stopped_sending_is_not_made_to_wait(script, opened):
    reader = opened(pytest.fail, qos=1)
    script.let_in()
    subscribed(script)
    for number in range(1, 5):
        script.publish(number, b'{"n": 1}')
    assert len(read(reader, 4)) == 4
    assert not reader.awaits_commit  # so few may be all there are
    for number in range(5, 11):
        script.publish(number, b'{"n": 1}')
    wait_until(lambda: reader.waiting == 6)
    time.sleep(0.02)
    assert len(read(reader, 6)) == 6
    assert reader.awaits_commit


def test_a_session_is_kept_unless_it_is_not_wanted(script, opened):
    def asked(**options):
        opened(pytest.fail, **options)
        body = script.let_in()
        expiry = int.from_bytes(body[12:16]) if script.version == 5 else None  # the first of the properties
        return bool(body[7] & 2), expiry

    five = script.version == 5
    assert asked(qos=0) == (True, 0 if five else None)
    assert asked(qos=1, session="60 s") == (False, 60 if five else None)
    assert asked(qos=1, session="0 s") == (True, 0 if five else None)


def test_a_will_and_a_name_are_in_the_first_packet(script, opened):
    from headwater.io import Will

    opened(pytest.fail, qos=1, will=Will("gone", "bye", qos=1, retain=True), username="me", password="pw")
    body = script.let_in()
    assert body[:6] == b"\0\4MQTT"
    assert body[7] == 0x80 | 0x40 | 0x20 | 0x08 | 0x04
    tail = packets.text("c") + (b"\0" if script.version == 5 else b"") + packets.text("gone") + packets.text("bye")
    assert body.endswith(tail + packets.text("me") + packets.text("pw"))
