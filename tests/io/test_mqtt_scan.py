"""The compiled cutting of bytes into packets, against a decoder of a few lines and against bytes that are no MQTT."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.io.mqtt import packets
from headwater.io.mqtt.frame import publishes
from headwater.io.mqtt.packets import ProtocolError
from headwater.io.mqtt.scan import MOST_TOPICS, TELL_AGAIN, TOLD, whole_texts
from headwater.io.mqtt.transport import Incoming
from properties import examples

NO_LIMIT = 1 << 40


class Pipe:
    """A transport that brings bytes in the pieces that a test says."""

    in_records = False

    def __init__(self, pieces):
        self._pieces = [piece for piece in pieces if piece]

    def receive_into(self, room):
        if not self._pieces:
            return None
        piece = self._pieces.pop(0)
        count = min(len(piece), len(room))
        room[:count] = piece[:count]
        if count < len(piece):
            self._pieces.insert(0, piece[count:])
        return count


def received(pieces, version=4, room=NO_LIMIT, largest=packets.LARGEST, aliases=8):
    """Return what a receiver makes of pieces: messages (topic, payload, flags, number), answers, other packets, error."""
    receiver = Incoming(version, largest, aliases, np.zeros(1 << 16, np.uint8))
    pipe, messages, answers, controls = Pipe(pieces), [], [], []
    try:
        while receiver.receive(pipe):
            while True:
                got, control = receiver.take(room)
                if got is not None:
                    flags = (got.flags & 15).tolist()
                    messages += zip(
                        got.topics.bytes_list(), got.payloads.bytes_list(), flags, got.numbers.tolist(), strict=True
                    )
                    answers += [tuple(row) for row in got.answers.tolist()]
                if control is not None:
                    controls.append(control)
                elif got is None:
                    break
    except ProtocolError as error:
        return messages, answers, controls, str(error)
    return messages, answers, controls, ""


def plainly(data, version=4):
    """Decode whole packets one by one: the reference."""
    messages, answers, controls, at, known = [], [], [], 0, {}
    while at < len(data):
        first, length, shift = data[at], 0, 0
        at += 1
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body, at = data[at : at + length], at + length
        if first >> 4 == 3:
            size = int.from_bytes(body[:2])
            topic, rest, number = body[2 : 2 + size], body[2 + size :], 0
            if first & 6:
                number, rest = int.from_bytes(rest[:2]), rest[2:]
            if version == 5:
                said, end = packets.properties(rest, 0)
                rest = rest[end:]
                if 0x23 in said:
                    topic = topic or known[said[0x23]]
                    known[said[0x23]] = topic
            messages.append((topic, rest, first & 15, number))
        elif 4 <= first >> 4 <= 7:
            answers.append((first >> 4, int.from_bytes(body[:2]), body[2] if length > 2 else 0))
        else:
            controls.append((first >> 4, body))
    return messages, answers, controls, ""


def a_number(limit):
    return st.integers(1, limit)


topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=40)
payloads = st.one_of(st.binary(max_size=40), st.integers(100, 40_000).map(lambda size: b"x" * size))


@st.composite
def properties(draw, version):
    if version < 5:
        return b""
    kinds = st.sampled_from(["format", "expiry", "type", "user", "subscription", "correlation"])
    said = b""
    for kind in draw(st.lists(kinds, max_size=4, unique=True)):
        said += {
            "format": b"\x01\x01",
            "expiry": b"\x02\x00\x00\x00\x3c",
            "type": b"\x03" + packets.text("text/plain"),
            "user": b"\x26" + packets.text(draw(st.text(max_size=5))) + packets.text("v"),
            "subscription": b"\x0b" + packets.number(draw(st.integers(1, packets.LARGEST))),
            "correlation": b"\x09\x00\x02\xff\xfe",
        }[kind]
    return packets.number(len(said)) + said


@st.composite
def a_packet(draw, version):
    kind = draw(st.sampled_from(["message"] * 4 + ["answer", "control"]))
    if kind == "message":
        qos, flags = draw(st.integers(0, 2)), draw(st.sampled_from([0, 1, 8, 9]))
        number = draw(a_number(65_535)).to_bytes(2) if qos else b""
        body = packets.text(draw(topics)) + number + draw(properties(version)) + draw(payloads)
        return packets.packet(0x30 | qos << 1 | flags, body)
    if kind == "answer":
        first, tail = (
            draw(st.sampled_from([0x40, 0x50, 0x62, 0x70])),
            draw(st.sampled_from([b"", b"\x00", b"\x87\x00"])),
        )
        return packets.packet(first, draw(a_number(65_535)).to_bytes(2) + (tail if version == 5 else b""))
    return packets.packet(draw(st.sampled_from([0x20, 0x90, 0xB0, 0xD0, 0xE0])), draw(st.binary(max_size=20)))


@examples(500)
@given(
    st.one_of(
        st.binary(max_size=40), st.binary(max_size=40).map(lambda data: b"\0\0" + packets.number(len(data)) + data)
    )
)
def test_a_packet_that_cannot_be_read_is_no_more_than_that(body):
    """Whatever stands in it: an error of another kind would end the connection for good."""
    for read in (lambda: packets.welcome(body, 5), lambda: packets.granted(body, 5), lambda: packets.farewell(body)):
        with suppress(ProtocolError):
            read()


@pytest.mark.parametrize(
    "cut", [b"\0\0\x05", b"\0\0\x03\x21\x00", b"\0\0\x05\x1f\x00\x09ab", b"\0\0\xff\xff\xff\x7f\x21\0\1"]
)
def test_properties_end_with_their_packet(cut):
    with pytest.raises(ProtocolError, match="properties"):
        packets.welcome(cut, 5)


@examples(150)
@given(st.sampled_from([4, 5]).flatmap(lambda v: st.tuples(st.just(v), st.lists(a_packet(v), max_size=12))), st.data())
def test_a_stream_is_read_as_the_reference_reads_it_however_it_is_cut(given, data):
    version, parts = given
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    room = data.draw(st.sampled_from([1, 3, NO_LIMIT]))
    assert received(pieces, version, room) == plainly(whole, version)


@pytest.mark.parametrize("version", [4, 5])
def test_a_stream_may_be_cut_at_every_byte(version):
    said = b"\x00" if version == 5 else b""
    whole = b"".join(
        [
            packets.packet(0x20, b"\x00\x00" + said),
            packets.packet(0x30, packets.text("a/b") + said + b"one"),
            packets.packet(0x3D, packets.text("ä") + b"\x12\x34" + said + b"y" * 130),
            packets.packet(0x40, b"\x00\x07"),
            packets.packet(0xD0, b""),
            packets.packet(0x32, packets.text("c") + b"\x00\x01" + said),
        ]
    )
    wanted = plainly(whole, version)
    assert len(wanted[0]) == 3
    for cut in range(len(whole) + 1):
        assert received([whole[:cut], whole[cut:]], version) == wanted
    assert received([whole[at : at + 1] for at in range(len(whole))], version) == wanted


@examples(300)
@given(st.binary(max_size=300), st.sampled_from([4, 5]))
def test_bytes_that_are_no_mqtt_do_no_harm(data, version):
    messages, *_ = received([data], version, largest=1000)
    assert sum(len(topic) + len(payload) for topic, payload, _, _ in messages) <= 8 * len(data) + 8


def broken(body, version=4, first=0x30, **options):
    return received([packets.packet(first, body)], version, **options)[3]


def test_what_breaks_the_rules_is_told_apart():
    long = packets.text("t") + b"x" * 100
    assert "length does not end" in received([b"\x30\xff\xff\xff\xff\x01"])[3]
    assert "larger than the largest" in received([packets.packet(0x30, long)[:3]], largest=50)[3]
    assert "larger than the largest" in received([b"\x20\xff\xff\x7f"], largest=50)[3]  # of any kind
    assert "QoS 3" in broken(packets.text("t") + b"\0\1", first=0x36)
    assert "without a number" in broken(packets.text("t") + b"\0\0", first=0x32)
    assert "without a topic" in broken(b"\0\0x")
    assert "shorter" in broken(b"\0\5abc")
    assert "shorter" in broken(b"\0")
    assert "shorter" in broken(b"\1", first=0x40)
    assert "brokers do not send" in broken(b"", first=0xC0)
    assert "properties" in broken(packets.text("t") + b"\x05\x26\x00\x09", version=5)
    assert "properties" in broken(packets.text("t") + b"\x01\x99", version=5)
    assert "alias" in broken(b"\0\0\x03\x23\x00\x01", version=5)
    assert "alias" in broken(packets.text("t") + b"\x03\x23\x00\x09", version=5)


def test_what_came_before_a_broken_packet_is_not_lost():
    good = packets.packet(0x30, packets.text("t") + b"1")
    messages, _, _, complaint = received([good + good + b"\x36\x05\x00\x01t\x00\x01" + good])
    assert ([payload for _, payload, *_ in messages], "QoS 3" in complaint) == ([b"1", b"1"], True)


def test_a_length_takes_no_memory_before_its_bytes_come():
    receiver = Incoming(4, packets.LARGEST, 0, np.zeros(1 << 16, np.uint8))
    assert receiver.receive(Pipe([b"\x30\xff\xff\xff\x7f\x00\x01t"]))
    assert receiver.take(NO_LIMIT) == (None, None)
    receiver.receive(Pipe([b"x"]))
    assert len(receiver._buffer) <= 1 << 20


def test_a_packet_larger_than_the_buffer_comes_whole():
    payload = bytes(range(256)) * 8000
    data = packets.packet(0x30, packets.text("big") + payload)
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    assert received(pieces)[0] == [(b"big", payload, 0, 0)]


def test_a_topic_alias_takes_no_more_memory_than_a_scan_may():
    """A message of eight bytes has a topic of 65,535 by its alias: a buffer full of them would be gigabytes."""
    first = packets.packet(0x30, packets.text("t" * 65_535) + b"\x03\x23\x00\x01")
    more = packets.packet(0x30, packets.text("") + b"\x03\x23\x00\x01") * 1000
    receiver = Incoming(5, packets.LARGEST, 8, np.zeros(1 << 16, np.uint8))
    assert receiver.receive(Pipe([first + more]))
    count = 0
    while count < 1001:
        got, _ = receiver.take(NO_LIMIT)
        assert 0 < len(got.topics.data) <= MOST_TOPICS + 65_535
        count += len(got)
    assert receiver.take(NO_LIMIT) == (None, None)


def test_a_topic_alias_is_learned_from_a_message_that_is_here_already():
    def message(topic, number, first):
        return packets.packet(first, packets.text(topic) + number.to_bytes(2) + b"\x03\x23\x00\x01" + b"x")

    states = np.zeros(1 << 16, np.uint8)
    states[7] = TOLD
    receiver = Incoming(5, packets.LARGEST, 8, states)
    receiver.receive(Pipe([message("a/b", 7, 0x3C) + message("", 8, 0x34)]))
    got, _ = receiver.take(NO_LIMIT)
    assert (got.topics.tolist(), got.answers.tolist()) == (["a/b"], [[TELL_AGAIN, 7, 0]])


def test_a_topic_alias_stands_for_the_topic_that_it_was_given_last():
    def message(topic, alias, payload):
        return packets.packet(0x30, packets.text(topic) + b"\x03\x23" + alias.to_bytes(2) + payload)

    data = message("a", 1, b"1") + message("", 1, b"2") + message("bb", 1, b"3") + message("", 1, b"4")
    assert [topic for topic, *_ in received([data], 5)[0]] == [b"a", b"a", b"bb", b"bb"]


@examples(60)
@given(
    st.lists(payloads, max_size=8), st.booleans(), st.integers(0, 2), st.sampled_from([4, 5]), st.integers(0, 200_000)
)
def test_what_is_framed_is_read_back(given, shared, qos, version, sequence):
    names = ["all"] if shared else [f"t/{n}" * (n * 20 + 1) for n in range(len(given))]
    texts, named = Text.of_bytes(given), Text.of(names)
    none = Text.of_bytes([b"\x00" if version == 5 else b""])
    columns = (texts.data, texts.offsets, named.data, named.offsets, none.data, none.offsets)
    data, ends = publishes(*columns, 0x31 | qos << 1, sequence)
    assert len(data) == (ends[-1] if len(given) else 0)
    wanted = [
        (names[0 if shared else n].encode(), payload, 1 | qos << 1, (sequence + n) % 65_535 + 1 if qos else 0)
        for n, payload in enumerate(given)
    ]
    assert received([data.tobytes()], version)[0] == wanted


@examples(300)
@given(st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode)), max_size=6))
def test_utf_8_is_told_as_python_tells_it(texts):
    def fits(text):
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return True

    column = Text.of_bytes(texts)
    assert whole_texts(column.data, column.offsets).tolist() == [fits(text) for text in texts]
