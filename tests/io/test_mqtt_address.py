"""How an MQTT broker and a topic are described: what a URL holds, what is refused, and that no password is ever shown."""

import traceback

import pytest

from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import label_of
from headwater.io import Jdbc, Mqtt, Will

SCHEMA = Schema.of({"id": str, "n": int})


def test_a_url_holds_everything():
    source = Mqtt("mqtts://me:p%40ss@example.org/city/+/#?qos=1&client_id=gate", schema=SCHEMA)
    assert (source.address.host, source.address.port, source.address.tls) == ("example.org", 8883, True)
    assert (source.address.username, source.address.password) == ("me", "p@ss")
    assert (source.topic, source.qos, source.client_id) == ("city/+/#", 1, "gate")
    assert Mqtt("host:1884", "t").address.port == 1884


def test_a_password_is_never_shown():
    source = Mqtt("mqtt://me:s3cret@host/t", schema=SCHEMA)
    assert "s3cret" not in f"{source} {source!r} {source.address} {source.address!r}"


SECRET = "s3cret"
MISTYPED = [
    f"mqtt://me:{SECRET}@host:port/t",
    f"mqtt://me:{SECRET}@host:99999/t",
    f"mqtt://me:{SECRET}/x@host/t",
    f"mqtt://me:12/{SECRET}@host/t",
    f"mqtt://me:12?{SECRET}@host/t",
    f"mqtt://me:12#{SECRET}@host/t",
    f"mqtt://me:[{SECRET}@host/t",
    f"mqtt://me:{SECRET}\u2100@host/t",
    f"http://me:{SECRET}@host/t",
    f"me:{SECRET}://x@host/t",
    f"mqtt:/me:{SECRET}@host/t",
    f"mqtt://me:{SECRET}@/t",
    f"mqtt://me:{SECRET}@host/t?quos=1",
    f"mqtt://me:{SECRET}@host",
    f"mqtt://me:{SECRET}@host/t?qos=7",
]


@pytest.mark.parametrize("url", MISTYPED)
def test_no_message_holds_a_password_however_the_url_is_mistyped(url):
    with pytest.raises(FlowError) as told:
        Mqtt(url)
    everything = "".join(traceback.format_exception(told.value, chain=True, limit=0))
    assert SECRET not in everything
    assert "12/" not in everything


@pytest.mark.parametrize(
    "url",
    [
        f"jdbc:postgresql://me:{SECRET}@host/base?user=x",
        f"jdbc:postgresql://host/base?password={SECRET}",
        f"jdbc:sqlserver://host;user=sa;password={SECRET}@1",
        f"jdbc:oracle:thin:me/{SECRET}@//host:1521/base",
    ],
)
def test_no_jdbc_url_is_shown_with_its_password(url):
    sink = Jdbc(url, "t", {"password": f"{SECRET}!"})
    said = sink.without_secrets(f"No suitable driver found for {url}; tried {SECRET}!")
    assert SECRET not in f"{sink} {label_of(sink)} {said}"
    with pytest.raises(FlowError, match="a JDBC URL begins with jdbc:") as told:
        Jdbc(url.removeprefix("jdbc:"), "t")
    assert SECRET not in str(told.value)


def test_the_client_id_lasts_where_the_broker_keeps_a_session():
    def name(qos, topic="t", purpose="read"):
        return Mqtt("host", topic, SCHEMA, qos=qos).name_for(purpose)

    assert name(1) == name(1) != name(1, "u")
    assert name(0) != name(0)
    assert name(1, purpose="write") != name(1, purpose="write")
    assert len(name(1)) <= 23  # what every broker must accept


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Mqtt("http://host/t"), "a broker is a host or mqtt://"),
        (lambda: Mqtt("mqtt://host:port/t"), "cannot read broker"),
        (lambda: Mqtt("host"), "which topic of mqtt://host:1883"),
        (lambda: Mqtt("host", "t", qos=3), r"qos is 0 .*, 1 .* or 2"),
        (lambda: Mqtt("host", "t", version="3"), r"version is '3.1.1' or '5'"),
        (lambda: Mqtt("host", "t", largest=0), "largest is the bytes"),
        (lambda: Mqtt("host", "t", SCHEMA, will=Will("a/#")), "a will has a topic without wildcards"),
        (lambda: Mqtt("host", "a/b+", SCHEMA).open(print), r"'\+' is a whole level"),
        (lambda: Mqtt("host", "a/#/b", SCHEMA).open(print), "'#' the whole last one"),
        (lambda: Mqtt("host", "$share/all", SCHEMA).open(print), r"'\$share/group/topic'"),
        (lambda: Mqtt("mqtt://host/t?quos=1"), "did you mean 'qos'"),
        (lambda: Mqtt("host", "t", payload="xml"), "payload is 'json' or 'text'"),
        (lambda: Mqtt("host", "t", buffer=0), "buffer"),
        (lambda: Mqtt("host", "t").schema, "takes a schema"),
        (lambda: Mqtt("host", "t", SCHEMA, created="n"), "'n' is int"),
        (lambda: Mqtt("host", "t", {"a": str, "b": str}, payload="text"), "exactly one text column"),
        (lambda: Mqtt("host", "t/{id}", SCHEMA).open(print), r"did you mean the wildcard '\+'"),
        (lambda: Mqtt("host", "t/+").open(SCHEMA), "holds a wildcard"),
        (lambda: Mqtt("host", "t/{ido}").open(SCHEMA), "there is no column 'ido'"),
        (lambda: Mqtt("host", "t/{id").open(SCHEMA), "cannot read topic"),
        (lambda: Mqtt("host", "t/{id:>5}").open(SCHEMA), r"written \{name\} or \{name:path\}; got '>5'"),
        (lambda: Mqtt("host", "t/\n/{id}").open(SCHEMA), "control character"),
        (lambda: Mqtt("host", "t", payload="text").open(Schema.of({"n": int})), "exactly one text column"),
    ],
)
def test_what_is_described_wrongly_is_refused(make, says):
    with pytest.raises(FlowError, match=says):
        make()
