"""What commands say of a flow at sites while no coordinator runs: how it is, and what could be done about it."""

import asyncio
import errno
import json
import shutil
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from headwater import __version__
from headwater.cli import add_commands, app
from headwater.cli.deploy import check_listen
from headwater.deploy.certificates import Identity, issued
from headwater.deploy.control.messages import PROTOCOL, Answer, Ask, Hello, Ping, Refuse, Welcome
from headwater.deploy.control.wire import Wire
from headwater.deploy.coordinator.server import Server
from headwater.deploy.coordinator.state import CoordinatorState, Deployment, StateFolder
from headwater.deploy.token import COORDINATOR, make_token, revoke, use_token
from headwater.errors import RunError
from headwater.io.lock import Lock
from ports import free_port

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
SITES = {"levels": "barn", "means": "cloud", "archive": "cloud"}


@pytest.fixture
def folder(tmp_path, certificates):
    """Return a state folder whose coordinator is gone."""
    made = StateFolder(tmp_path / "state")
    shutil.copytree(certificates, made.certificates)
    made.note_address("127.0.0.1", free_port())
    return made


def left(folder, phase):
    deployed = Deployment(
        id="tanks-1", name="tanks", flow="tanks.py", known=["barn", "cloud"], sites=SITES, phase=phase
    )
    folder.write(CoordinatorState(deployed=deployed))


def said(folder, *words):
    add_commands()
    done = CliRunner().invoke(app, [*words, "--state", str(folder.path)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_status_of_a_flow_that_has_ended_says_so_and_not_that_a_coordinator_is_missing(folder):
    left(folder, "ended")
    told = said(folder, "status")
    assert told.startswith("flow 'tanks' is ended (tanks-1) it has come to its end at all its sites")
    assert "no coordinator" not in told
    assert "stop --forget" in told
    shown = json.loads(said(folder, "status", "--json"))["deployed"]
    assert [(site["name"], site["state"], site["steps"]) for site in shown["sites"]] == [
        ("barn", "ended", ["levels"]),
        ("cloud", "ended", ["means", "archive"]),
    ]


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("running", "no coordinator runs; the sites go on as they are, and 'headwater deploy --state"),
        ("stopped", "each part has a checkpoint, from which 'headwater deploy --state"),
        ("stopping", "not all sites have stopped; 'headwater stop --state"),
        ("installing", "not all sites have their parts; 'headwater deploy --state"),
    ],
)
def test_status_says_what_is_known_in_every_phase(folder, phase, told):
    left(folder, phase)
    assert told in said(folder, "status")


def test_a_flow_that_has_ended_is_stopped_and_forgotten_without_a_table_that_denies_it(folder):
    left(folder, "ended")
    told = said(folder, "stop")
    assert "it has come to its end at all its sites" in told
    assert "has not joined" not in told
    told = said(folder, "stop", "--forget")
    assert told == (
        "nothing is deployed flow 'tanks' is forgotten; its sites remove what they keep of it once a coordinator tells them"
    )
    assert folder.read() == CoordinatorState(forgotten=["tanks-1"])
    assert "there was nothing to forget" in said(folder, "stop", "--forget")
    assert "nothing is deployed" in said(folder, "status")


def test_an_address_that_the_sites_of_up_do_not_dial_is_refused(folder):
    host, port = folder.address
    check_listen(folder, ("127.0.0.1", port - 1))  # nobody is there yet to dial another
    lock = Lock(folder.path / "sites", "the folder of sites")  # as 'headwater up' has it
    try:
        check_listen(folder, (host, port))
        with pytest.raises(RunError, match=f"dial {host}:{port}, and --listen says 127.0.0.1:{port - 1}; leave"):
            check_listen(folder, ("127.0.0.1", port - 1))
    finally:
        lock.release()
    check_listen(folder, ("127.0.0.1", port - 1))  # it is gone


@asynccontextmanager
async def served(folder):
    """Have a coordinator listen; yields what dials it, as the site 'barn' does."""
    server = Server(folder)
    try:
        await server.open("127.0.0.1", 0)
        context = issued(folder.certificates, "barn").client()

        async def dialled(context=context):
            at = await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=COORDINATOR)
            return Wire(*at)

        yield dialled
        await server.close()
    finally:
        server.release()


def test_a_site_whose_first_word_is_of_another_version_is_told_which_to_install(folder):
    async def answered():
        async with served(folder) as dialled:
            wire = await dialled()
            wire._writer.write((3).to_bytes(4, "big") + b"\xc1\xc1\xc1")  # no MessagePack of any version
            async with asyncio.timeout(30):
                answer = await wire.hear()
            await wire.close()
        return answer

    answer = asyncio.run(answered())
    assert isinstance(answer, Refuse)
    assert "no message of this version" in answer.why
    assert "install the same at both" in answer.why


@pytest.mark.parametrize("alive", [True, False])
def test_a_site_that_calls_again_takes_the_place_of_a_connection_that_is_dead_and_of_no_other(folder, alive):
    hello = Hello("barn", __version__, PROTOCOL, None, 1.0, 1)

    async def answered():
        async with served(folder) as dialled:
            wires = []
            for _ in range(2):
                wires.append(await dialled())
                wires[-1].say(hello)
                async with asyncio.timeout(60):
                    answer = await _answer(wires[-1], wires[0] if alive else None)
            for wire in wires:
                await wire.close()
        return answer

    answer = asyncio.run(answered())
    if alive:
        assert "a site 'barn' is here already, from 127.0.0.1" in answer.why
    else:
        assert isinstance(answer, Welcome)


async def _answer(wire, other):
    """Return the first word to a site, while another one says that it is there."""
    waiting = asyncio.ensure_future(wire.hear())
    while not waiting.done():
        if other is not None and other is not wire:
            other.say(Ping())
        await asyncio.sleep(0.05)
    return waiting.result()


@pytest.mark.parametrize("here", [True, False])
def test_a_site_that_is_revoked_is_hung_up_on_and_admitted_with_a_new_token_alone(folder, tmp_path, here):
    async def answered():
        async with served(folder) as dialled, asyncio.timeout(60):
            wires = [await dialled()]
            if here:
                assert isinstance(await _greeted(wires[0]), Welcome)
            await asyncio.to_thread(said, folder, "site", "revoke", "barn")
            while here and await wires[0].hear() is not None:
                wires[0].say(Ping())  # it is there, and would stay
            wires.append(await dialled())
            answers = [await _greeted(wires[-1])]
            token = await asyncio.to_thread(make_token, folder.certificates, "barn")
            use_token(token, tmp_path / "site")
            wires += [await dialled(Identity.of(tmp_path / "site", "barn").client()), await dialled()]
            answers += [await _greeted(wire) for wire in wires[2:]]
            for wire in wires:
                await wire.close()
            return answers

    before, new, old = asyncio.run(answered())
    assert "its certificate is revoked" in before.why
    assert isinstance(new, Welcome)
    assert "its certificate is revoked" in old.why


def test_what_is_revoked_is_heeded_once_it_can_be_read(folder, monkeypatch, caplog):
    make_token(folder.certificates, "barn")
    server = Server(folder)
    try:
        revoke(folder.certificates, "barn")
        with monkeypatch.context() as full:
            full.setattr("pathlib.Path.read_bytes", _no_file_to_open)
            server._heed_revoked()
            server._heed_revoked()
        assert caplog.text.count("Too many open files") == 1
        assert server.coordinator.revoked == {}
        server._heed_revoked()
        assert server.coordinator.revoked == {"barn": ""}
    finally:
        server.release()


def _no_file_to_open(path):
    raise OSError(errno.EMFILE, "Too many open files")


def test_who_asks_and_is_held_up_has_the_whole_of_a_long_answer(folder, monkeypatch):
    said = Answer({"sites": "x" * 30_000_000})  # more than a connection takes before anybody reads

    async def answer(server, question):
        return said

    async def answered():
        async with served(folder) as dialled, asyncio.timeout(60):
            wire = await dialled(Identity.of(folder.certificates, COORDINATOR).client())
            wire.say(Ask("status"))
            await asyncio.sleep(2.0)
            heard = await wire.hear()
            await wire.close()
        return heard

    monkeypatch.setattr(Server, "_answer", answer)
    assert asyncio.run(answered()) == said


async def _greeted(wire):
    """Return the answer to the first word of a site."""
    wire.say(Hello("barn", __version__, PROTOCOL, None, 1.0, 1))
    return await wire.hear()


@pytest.mark.parametrize("there", [True, False])
def test_a_token_is_written_for_its_owner_alone_to_read(folder, tmp_path, there):
    path = tmp_path / "barn.token"
    if there:
        path.write_text("what is longer than a token: " + "x" * 10_000)
        path.chmod(0o644)
    assert said(folder, "site", "token", "barn", "--output", str(path)) == ""
    assert path.stat().st_mode & 0o777 == 0o600
    assert use_token(path.read_text(), tmp_path / "site") == "barn"
    assert path.read_text().strip() == said(folder, "site", "token", "barn")


def test_a_token_that_cannot_be_written_is_told(folder, tmp_path):
    add_commands()
    words = ["site", "token", "barn", "--output", str(tmp_path), "--state", str(folder.path)]
    done = CliRunner().invoke(app, words)
    assert "it is a directory; name a file in it" in str(done.exception)
