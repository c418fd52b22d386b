"""MQTT in and out against a real mosquitto, in both versions of the protocol and all three kinds of service."""

import socket
import ssl
import subprocess
import time
from contextlib import suppress
from itertools import count

import pytest
from mosquitto import PROGRAM, Mosquitto, heard

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import Mqtt, Will
from headwater.io.mqtt import packets
from waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")

SCHEMA = Schema.of({"n": int})
names = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"), "max_queued_messages 0").start()
    yield broker
    broker.stop()


@pytest.fixture
def another(tmp_path):
    """Start brokers of one's own, which are stopped after the test, whatever came of it."""
    brokers = []

    def start(*lines, scheme="mqtt"):
        brokers.append(Mosquitto(tmp_path, *lines, scheme=scheme))
        return brokers[-1].start()

    yield start
    for broker in brokers:
        broker.stop()


@pytest.fixture
def topic():
    return f"mosquitto/{next(names)}"


def reading(opened, broker, topic, **options):
    options.setdefault("client_id", f"reader-{topic.replace('/', '-').replace('$', '')}-{next(names)}")
    reader = opened(Mqtt(broker.url, topic, SCHEMA, retry="50 ms", **options), pytest.fail)
    assert reader.subscribed.wait(PATIENCE_S)
    return reader


def numbers(*values):
    return Batch.of({"n": list(values)}, SCHEMA)


def taken(reader, number, limit=2000):
    rows, end = [], time.monotonic() + PATIENCE_S
    while len(rows) < number:
        assert time.monotonic() < end, f"only {len(rows)} of {number} came"
        rows += [row["n"] for row in reader.read(limit, 0.2).rows()]
    return rows


every_kind = pytest.mark.parametrize("qos", [0, 1, 2])
every_version = pytest.mark.parametrize("version", ["3.1.1", "5"])


@every_kind
@every_version
def test_records_come_back_exactly(opened, broker, topic, qos, version):
    reader = reading(opened, broker, topic, qos=qos, version=version)
    writer = opened(Mqtt(broker.url, topic, qos=qos, version=version), SCHEMA)
    for start in range(0, 5000, 500):
        writer.write(numbers(*range(start, start + 500)))
    assert taken(reader, 5000) == list(range(5000))
    writer.flush()
    assert len(reader.read(10, 0.05)) == 0


@every_kind
def test_what_mosquittos_own_clients_say_and_hear_is_the_same(opened, broker, topic, qos):
    reader = reading(opened, broker, f"{topic}/in", qos=qos, version="5")
    broker.published(f"{topic}/in", *[f'{{"n": {n}}}' for n in range(50)], qos=qos, version="5")
    assert taken(reader, 50) == list(range(50))
    listener = broker.listening(f"{topic}/out/#", 50, qos)
    writer = opened(Mqtt(broker.url, f"{topic}/out/{{n}}", qos=qos), SCHEMA)
    writer.write(numbers(*range(50)))
    assert heard(listener) == [(f"{topic}/out/{n}", f'{{"n":{n}}}') for n in range(50)]


@every_version
def test_a_large_message_goes_both_ways(opened, broker, topic, version):
    schema = Schema.of({"text": str})
    reader = opened(Mqtt(broker.url, topic, schema, payload="text", version=version), pytest.fail)
    assert reader.subscribed.wait(PATIENCE_S)
    text = "é" * 1_500_000
    opened(Mqtt(broker.url, topic, payload="text", version=version), schema).write(Batch.of({"text": [text]}, schema))
    rows, end = [], time.monotonic() + PATIENCE_S
    while not rows and time.monotonic() < end:
        rows += reader.read(10, 0.2).rows()
    assert rows == [{"text": text}]


def test_what_is_retained_comes_to_who_asks_later(opened, broker, topic):
    writer = opened(Mqtt(broker.url, topic, qos=1, retain=True), SCHEMA)
    writer.write(numbers(1, 2))
    writer.flush()
    assert taken(reading(opened, broker, topic), 1) == [2]


@every_version
def test_the_will_of_who_is_lost_is_published(opened, broker, topic, version):
    listener = broker.listening(f"{topic}/will", 1)
    will = Will(f"{topic}/will", "gone", qos=1)
    reader = reading(opened, broker, topic, will=will, version=version)
    reader._connection._sender._transport._socket.shutdown(2)  # as a cut cable would
    assert heard(listener) == [(f"{topic}/will", "gone")]
    wait_until(reader._connection.connected.is_set)
    reader.close()


def test_who_says_goodbye_leaves_no_will(opened, broker, topic):
    listener = broker.listening(f"{topic}/#", 1)
    reading(opened, broker, f"{topic}/in", will=Will(f"{topic}/will", "gone")).close()
    broker.published(f"{topic}/last", "x")
    assert heard(listener) == [(f"{topic}/last", "x")]


@every_version
def test_two_readers_share_a_subscription(opened, broker, topic, version):
    readers = [reading(opened, broker, f"$share/both/{topic}", qos=1, version=version) for _ in range(2)]
    opened(Mqtt(broker.url, topic, qos=1), SCHEMA).write(numbers(*range(200)))
    rows: list[list[int]] = [[], []]
    end = time.monotonic() + PATIENCE_S
    while len(rows[0]) + len(rows[1]) < 200 and time.monotonic() < end:
        for got, reader in zip(rows, readers, strict=True):
            got += polled(reader)
    assert sorted(rows[0] + rows[1]) == list(range(200))
    assert rows[0]
    assert rows[1]


def polled(reader):
    return [row["n"] for row in reader.read(50, 0.02).rows()]


@pytest.mark.parametrize("qos", [1, 2])
@every_version
def test_a_session_goes_on_after_the_broker_was_killed(opened, another, tmp_path, topic, qos, version):
    store = f"persistence_location {tmp_path}/"
    lines = ["persistence true", store, "autosave_interval 1", "autosave_on_changes true", "max_queued_messages 0"]
    broker = another(*lines)
    reader = reading(opened, broker, topic, qos=qos, version=version)
    writer = opened(Mqtt(broker.url, topic, qos=qos, version=version, retry="50 ms", client_id=f"w{qos}"), SCHEMA)
    writer.write(numbers(*range(300)))
    writer.flush()
    got = taken(reader, 100, limit=100)
    settled(broker, tmp_path / "mosquitto.db")  # what the broker took and had not written down yet would be gone
    broker.kill()
    wait_until(lambda: not writer._connection.connected.is_set())
    writer.write(numbers(*range(300, 600)))
    broker.start()
    end = time.monotonic() + PATIENCE_S
    while not set(range(600)) <= set(got):
        assert time.monotonic() < end, f"{len(set(range(600)) - set(got))} are missing"
        got += polled(reader)
    wait_until(lambda: not writer.waiting)


def settled(broker, file):
    """Wait until a broker has written to its file, and has had nothing to do since for a while."""
    wait_until(lambda: file.exists() and time.time() - file.stat().st_mtime > 0.5 and broker.is_waiting())


@every_version
def test_what_came_while_a_reader_was_away_comes_when_it_is_back(opened, broker, topic, version):
    options = {"qos": 1, "client_id": f"away-{next(names)}", "version": version}
    reading(opened, broker, topic, **options).close()
    broker.published(topic, '{"n": 1}', '{"n": 2}')
    assert taken(reading(opened, broker, topic, **options), 2) == [1, 2]


@every_version
def test_what_was_not_committed_comes_again(opened, broker, topic, version):
    options = {"qos": 1, "client_id": f"held-{next(names)}", "version": version}
    reader = reading(opened, broker, topic, **options)
    reader.commit(reader.position)  # from now on only what is committed is acknowledged
    broker.published(topic, *[f'{{"n": {n}}}' for n in range(10)])
    first = taken(reader, 4, limit=2)
    half = reader.position
    taken(reader, 10 - len(first))
    reader.commit(half)
    reader.close()
    assert taken(reading(opened, broker, topic, **options), 10 - half) == list(range(half, 10))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)
    pem, key = folder / "cert.pem", folder / "key.pem"
    made = subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {key} "
        f"-out {pem} -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1".split(),
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr
    key.chmod(0o644)
    return pem, key


def test_tls_carries_many_records_both_ways_and_asks_for_our_certificate(opened, another, certificate, topic):
    pem, key = certificate
    lines = [f"cafile {pem}", f"certfile {pem}", f"keyfile {key}", "require_certificate true", "max_queued_messages 0"]
    broker = another(*lines, scheme="mqtts")
    files = {"ca": pem, "certificate": pem, "key": key}
    reader = reading(opened, broker, topic, qos=1, **files)
    writer = opened(Mqtt(broker.url, topic, qos=1, **files), SCHEMA)
    for start in range(0, 20_000, 1000):
        writer.write(numbers(*range(start, start + 1000)))
    assert taken(reader, 20_000) == list(range(20_000))
    stranger = opened(Mqtt(broker.url, topic, SCHEMA, retry="50 ms"), pytest.fail)
    wait_until(lambda: stranger._connection.refused)
    with pytest.raises(InputError, match="its certificate is not trusted"):
        stranger.read(1, 0)


def test_tls_goes_on_with_a_piece_that_it_had_begun(certificate, topic):
    """A ping that comes while the network is full waits: OpenSSL takes nothing else before what it has encrypted in part."""
    pem, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server = socket.create_server(("127.0.0.1", 0))
    schema = Schema.of({"text": str})
    writer = Mqtt(f"mqtts://127.0.0.1:{server.getsockname()[1]}", topic, payload="text", ca=pem).open(schema)
    with server, context.wrap_socket(server.accept()[0], server_side=True) as broker:
        broker.settimeout(60)
        assert broker.recv(1000)[0] == 0x10
        broker.sendall(b"\x20\x02\x00\x00")
        wait_until(writer._connection.connected.is_set)
        texts = [f"{number:07d}" * 100 for number in range(20_000)]  # more than any socket keeps
        for start in range(0, len(texts), 100):  # a piece ends with a packet
            writer.write(Batch.of({"text": texts[start : start + 100]}, schema))
        wait_until(lambda: writer._connection._sender.blocked)
        writer._connection.send(packets.PING)
        came, size = bytearray(), sum(len(text) + len(topic) + 5 for text in texts) + len(packets.PING)
        while len(came) < size:
            more = broker.recv(1 << 16)
            assert more, "the connection was lost"
            came += more
    ping = came.index(packets.PING)
    del came[ping : ping + 2]
    each = len(came) // len(texts)
    assert [came[at + each - 700 : at + each].decode() for at in range(0, len(came), each)] == texts
    with suppress(InputError):
        writer.close()


@every_version
def test_a_wrong_password_is_told(opened, another, tmp_path, topic, version):
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "me", "right"], check=True)
    passwords.chmod(0o644)
    broker = another(f"password_file {passwords}")
    reading(opened, broker, topic, username="me", password="right", version=version).close()
    wrong = opened(Mqtt(broker.url, topic, SCHEMA, username="me", password="left", version=version), pytest.fail)
    wait_until(lambda: wrong._connection.refused)
    with pytest.raises(InputError, match=r"refuses the connection: Not authorized; are user and password right"):
        wrong.read(1, 0)


def test_a_message_that_the_broker_finds_too_large_is_refused_alone(opened, another, topic):
    broker = another("max_packet_size 1000")
    schema = Schema.of({"text": str})
    writer = opened(Mqtt(broker.url, topic, payload="text", version="5"), schema)
    wait_until(writer._connection.connected.is_set)
    refused = writer.write(Batch.of({"text": ["a", "x" * 2000, "b"]}, schema))
    assert list(refused) == [1]
    assert "at most" in refused[1]


@every_kind
def test_a_message_as_large_as_the_broker_takes_is_taken_and_one_byte_more_is_refused(opened, another, topic, qos):
    """By the whole packet: a few bytes too many had the broker leave, and the sink never came back."""
    broker = another("max_packet_size 1000")
    schema = Schema.of({"text": str})
    reader = opened(Mqtt(broker.url, topic, schema, payload="text"), pytest.fail)
    assert reader.subscribed.wait(PATIENCE_S)
    writer = opened(Mqtt(broker.url, topic, payload="text", version="5", qos=qos), schema)
    wait_until(writer._connection.connected.is_set)
    fits = 1000 - 3 - 2 - len(topic) - (2 if qos else 0) - 1
    texts = ["x" * (fits + 1), "y" * fits]
    assert list(writer.write(Batch.of({"text": texts}, schema))) == [0]
    writer.flush()
    rows, end = [], time.monotonic() + PATIENCE_S
    while not rows and time.monotonic() < end:
        rows += reader.read(10, 0.2).rows()
    assert rows == [{"text": texts[1]}]
