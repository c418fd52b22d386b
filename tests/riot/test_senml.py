from __future__ import annotations

import json
import math
import random

import msgspec
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.errors import FlowError
from headwater.io.senml.columns import Reason, SenmlParser
from headwater.io.senml.scan import scan
from properties import examples

FIELDS = {"source": "text", "temp": "float", "hum": "float", "lon": "text"}
USUAL = (
    '{"e":[{"u":"string","n":"source","sv":"ci4lr75"},{"v":"6.16","u":"lon","n":"lon"},'
    '{"v":"8","u":"far","n":"temp"},{"v":53.7,"u":"m\\/s2","n":"hum"}],"bt":1422748800000}'
)


def parse(messages: list[bytes], parser: SenmlParser | None = None):
    parsed = (parser or SenmlParser(FIELDS)).parse(Text.of_bytes(messages))
    texts = {n: Text(*parsed.columns[n]).tolist() for n in ("source", "lon")}
    rows = []
    for i in range(len(messages)):
        values = {"source": texts["source"][i], "temp": parsed.columns["temp"][i]}
        values |= {"hum": parsed.columns["hum"][i], "lon": texts["lon"][i]}
        rows.append(None if parsed.status[i] else (int(parsed.time_ms[i]), values))
    return rows


def is_sure(message: bytes) -> bool:
    """Tell whether the compiled scan alone accepts a message."""
    names, column = Text.of(["temp", "hum", "source", "lon"]), Text.of_bytes([message])
    values, spans = np.empty((2, 1)), np.empty((2, 1, 2), np.int64)
    return (
        scan(
            column.data,
            column.offsets,
            names.data,
            names.offsets,
            values,
            spans,
            np.empty(1, np.int64),
            np.zeros(1, bool),
        )
        == 0
    )


numbers = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**20), 10**20)
    | st.integers(-(10**6), 10**6).map(lambda n: n / 100)
)
odd_values = st.sampled_from(["", " 8 ", "1_0", "nan", "-Infinity", "1e400", "0x1", "+5", "007", ".5", "5.", "é"])
values = numbers | numbers.map(str) | odd_values | st.none() | st.booleans() | st.just([1])
names = st.sampled_from([*FIELDS, *FIELDS, "other", "", "sourc", "tempe"])


plain_values = st.integers(-(10**6), 10**6).map(lambda n: n / 100) | st.integers(-999, 10**6)


@st.composite
def entries(draw, name, plain):
    """Draw one entry: of the usual form when `plain`, else of any form that a JSON writer could give it."""
    units = ["lon", "per", "m/s2"] if plain else ["lon", "°C", 'a"b', "\\"]
    entry = {"n": name, "u": draw(st.sampled_from(units))}
    if plain or draw(st.integers(0, 9)):
        kind = "sv" if name in ("source", "other") else "v"
        texts = st.sampled_from(["ci4lr75", "a b", "", "0"]) if plain else st.text(max_size=5)
        drawn = plain_values if plain else values
        entry[kind] = draw(texts if kind == "sv" else drawn | drawn.map(str))
    if plain and not draw(st.integers(0, 4)):
        entry["sv"] = draw(st.sampled_from(["7", "x"]))  # beside a v, which counts, or in the place of one
    if not plain and not draw(st.integers(0, 9)):
        entry[draw(st.sampled_from(["t", "v", "sv", "n", "vb"]))] = draw(values)
    return {key: entry[key] for key in draw(st.permutations(list(entry)))}


@st.composite
def messages(draw):
    """Draw a message, mostly one of the usual form, written by one of several writers, then perhaps damaged."""
    plain = draw(st.integers(0, 3)) > 0
    wanted = list(FIELDS) if plain or draw(st.booleans()) else draw(st.lists(names, max_size=6))
    if plain and draw(st.booleans()):
        wanted = [*wanted, draw(st.sampled_from(["other", "other", *FIELDS]))]
    document = {"e": [draw(entries(name, plain)) for name in draw(st.permutations(wanted))]}
    time = draw(st.integers(0, 2 * 10**12))
    if not plain:
        time = draw(st.integers(-5, 5) | st.just(10**16) | st.floats() | st.text(max_size=3) | st.none())
    document["bt"] = draw(st.sampled_from([time, str(time)]))
    if not plain and not draw(st.integers(0, 4)):
        document[draw(st.sampled_from(["bn", "bu", "x", "e"]))] = draw(values)
    if draw(st.booleans()):
        document = dict(reversed(document.items()))
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")]))
    text = json.dumps(document, separators=spaces, ensure_ascii=draw(st.booleans()))
    text = text.replace("m/s2", draw(st.sampled_from(["m/s2", "m\\/s2"])))
    return draw(damaged(bytearray(text.encode("utf-8", "surrogatepass"))))


@st.composite
def damaged(draw, raw):
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(raw) - 1))
        match draw(st.sampled_from(["cut", "drop", "insert", "change"])):
            case "cut":
                raw = raw[: at + 1]
            case "drop":
                raw = raw[:at] + raw[at + 1 :] if len(raw) > 1 else raw
            case "insert":
                raw.insert(at, draw(st.sampled_from(b'"\\{}[],:0-.e \n\x00\x80\xff')))
            case "change":
                raw[at] = draw(st.sampled_from(b'"\\{}[],:0-.e \n\x00\x80\xff'))
    return bytes(raw)


def same(one, other) -> bool:
    if one is None or other is None:
        return one is other
    (time, mine), (its_time, its) = one, other
    numbers_match = all(mine[n] == its[n] for n in ("temp", "hum"))
    return time == its_time and numbers_match and mine["source"] == its["source"] and same_text(mine["lon"], its["lon"])


def same_text(mine: str, its: str) -> bool:
    # A bare number taken as text keeps the sender's spelling (1.50), which json does not remember.
    return mine == its or float(mine) == float(its)


@examples(250)
@given(st.lists(messages(), max_size=6))
def test_parser_and_json_library_never_disagree(batch):
    for mine, raw in zip(parse(batch), batch, strict=True):
        assert same(mine, reference.senml(raw, FIELDS)), raw


@examples(200)
@given(messages().filter(is_sure))
def test_what_the_compiled_scan_accepts_a_second_json_library_accepts_too(raw):
    msgspec.json.decode(raw)
    assert reference.senml(raw, FIELDS) is not None


def test_damage_at_every_single_byte_is_judged_as_json_judges_it():
    usual = USUAL.encode()
    damaged = [usual[:i] + bytes([c]) + usual[i + 1 :] for i in range(len(usual)) for c in b'"\\ 0,}]\x1f\xc3']
    damaged += [usual[:i] for i in range(len(usual))]
    for mine, raw in zip(parse(damaged), damaged, strict=True):
        assert same(mine, reference.senml(raw, FIELDS)), raw


@st.composite
def of_one_form(draw):
    """Draw a message, and others that differ from it by their values, or by a little damage."""
    first = draw(messages().filter(is_sure))
    document = json.loads(first)
    others = []
    for _ in range(draw(st.integers(1, 5))):
        for entry in document["e"]:
            for kind in entry.keys() & {"v", "sv"}:
                # by far not all of these still have the form of the first
                old, new = entry[kind], draw(plain_values | plain_values.map(str) | odd_values)
                entry[kind] = new if draw(st.booleans()) else old
        document["bt"] = draw(st.integers(0, 10**13)) if isinstance(document["bt"], int) else str(draw(st.integers()))
        others.append(draw(damaged(bytearray(json.dumps(document, separators=(",", ":")).encode()))))
        others.append(draw(damaged(bytearray(first))))
    return first, others


@examples(200)
@given(of_one_form())
def test_what_was_learned_from_a_message_changes_no_answer_for_others(drawn):
    first, others = drawn
    parser = SenmlParser(FIELDS)
    parse([first], parser)
    for mine, raw in zip(parse(others, parser), others, strict=True):
        assert same(mine, reference.senml(raw, FIELDS)), (first, raw)


@pytest.mark.parametrize("bt", ["1422748800000", '"1422748800000"'])
def test_damage_to_a_message_of_a_known_form_is_judged_as_json_judges_it(bt):
    usual = USUAL.replace("1422748800000", bt).encode()
    parser = SenmlParser(FIELDS)
    parse([usual], parser)
    damaged = [usual[:i] + bytes([c]) + usual[i + 1 :] for i in range(len(usual)) for c in b'"\\ 0,}]-.\x1f\xc3']
    damaged += [usual[:i] for i in range(len(usual))] + [usual + b"}", usual + b" "]
    for raw in damaged:  # one by one, so that what is learned stays what it is
        assert same(parse([raw], parser)[0], reference.senml(raw, FIELDS)), raw
        parse([usual], parser)


def test_a_known_form_is_read_without_the_scan(monkeypatch):
    parser = SenmlParser(FIELDS)
    first = parse([USUAL.encode()], parser)
    monkeypatch.setattr("headwater.io.senml.columns.scan", None)  # whoever calls it now, breaks
    assert parse([USUAL.encode()] * 3, parser) == first * 3
    other = USUAL.replace("53.7", "-2.5e1").replace("ci4lr75", "x").replace(":1422748800000", ":7")
    assert parse([other.encode()], parser) == [(7, {"source": "x", "temp": 8.0, "hum": -25.0, "lon": "6.16"})]


def test_forms_that_change_all_the_time_are_learned_ever_more_seldom():
    parser, learned = SenmlParser(FIELDS), set()
    for i in range(200):
        other = USUAL.replace("m\\/s2", f"unit-{i}")
        assert parse([other.encode()], parser) == parse([USUAL.encode()])
        learned.add(parser._form.pieces.tobytes())
    assert 3 < len(learned) < 12


def test_the_usual_forms_need_no_second_look():
    spaced = json.dumps(json.loads(USUAL), indent=1)
    backwards = json.dumps({"bt": "1422748800000", "e": json.loads(USUAL)["e"][::-1]})
    with_more = USUAL.replace("[{", '[{"n":"other","sv":"x"},{', 1)
    for message in (USUAL, spaced, backwards, with_more, f" {USUAL}\n"):
        assert is_sure(message.encode()), message
        expected = {"source": "ci4lr75", "temp": 8.0, "hum": 53.7, "lon": "6.16"}
        assert parse([message.encode()]) == [(1422748800000, expected)]


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        ("", Reason.NOT_JSON, "not JSON"),
        (USUAL[:-1], Reason.NOT_JSON, "not JSON"),
        (USUAL.replace("53.7", "NaN"), Reason.NOT_JSON, "not JSON"),
        (USUAL.replace("ci4", "\\ud800"), Reason.NOT_JSON, "not JSON"),
        ("[" * 100_000, Reason.NOT_JSON, "not JSON"),
        ("[]", Reason.NOT_SENML, "no SenML"),
        ('{"e":{"n":"temp"},"bt":1}', Reason.NOT_SENML, "no SenML"),
        ('{"e":[[{"n":"temp"}]],"bt":1}', Reason.NOT_SENML, "no SenML"),
        (USUAL.replace(":1422748800000", ':"soon"'), Reason.BAD_TIME, "'bt' is missing or not"),
        (USUAL.replace(":1422748800000", ":1.5"), Reason.BAD_TIME, "'bt' is missing or not"),
        (USUAL.replace("1422748800000", "9" * 30), Reason.BAD_TIME, "'bt' is missing or not"),
        (USUAL.replace('"n":"hum"', '"n":"humid"'), Reason.MISSING, "'hum' is missing"),
        (USUAL.replace('"n":"hum"', '"n":"temp"'), Reason.TWICE, "'temp' is there twice"),
        (USUAL.replace('"v":53.7,', ""), Reason.NO_VALUE, "'hum' has neither"),
        (USUAL.replace("53.7", '"warm"'), Reason.NOT_A_NUMBER, "'hum' is not a number"),
        (USUAL.replace("53.7", "true"), Reason.NOT_A_NUMBER, "'hum' is not a number"),
        (USUAL.replace("53.7", '"inf"'), Reason.NOT_FINITE, "'hum' is not finite"),
        (USUAL.replace("53.7", "1e999"), Reason.NOT_FINITE, "'hum' is not finite"),
    ],
)
def test_a_refused_message_says_why(message, reason, words):
    parser = SenmlParser(FIELDS)
    status = parser.parse(Text.of([USUAL, message, USUAL])).status
    assert status[[0, 2]].tolist() == [0, 0]
    assert status[1] & 0xFF == reason
    assert words in parser.explain(status[1])


def test_a_message_of_a_megabyte_is_read():
    padding = ",".join(f'{{"n":"x{i}","v":{i}}}' for i in range(60_000))
    raw = USUAL.replace("[{", f"[{padding},{{", 1).encode()
    assert len(raw) > 1_000_000
    assert parse([raw]) == parse([USUAL.encode()])


def test_every_number_comes_out_as_float_reads_it():
    draw = random.Random(7)
    texts = [f"{draw.uniform(-1000, 1000):.{draw.randint(0, 17)}f}" for _ in range(2000)]
    texts += [repr(draw.uniform(-1, 1) * 10.0 ** draw.randint(-300, 300)) for _ in range(2000)]
    column = Text.of([json.dumps({"e": [{"n": "x", "v": text}], "bt": 0}) for text in texts])
    found = SenmlParser({"x": "float"}).parse(column).columns["x"]
    assert all(
        math.copysign(1, a) == math.copysign(1, b) and a == b for a, b in zip(found, map(float, texts), strict=True)
    )


def test_an_empty_batch_has_empty_columns():
    parsed = SenmlParser(FIELDS).parse(Text.of([]))
    assert len(parsed.time_ms) == len(parsed.status) == len(parsed.columns["temp"]) == 0
    assert len(parsed.columns["lon"].offsets) == 1


def test_a_parser_of_no_fields_or_too_many_is_refused():
    with pytest.raises(FlowError, match="1 to 62 fields; got 0"):
        SenmlParser({})
    with pytest.raises(FlowError, match="got 63"):
        SenmlParser({f"x{i}": "float" for i in range(63)})
