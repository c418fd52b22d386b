"""Certificates that several commands ask for at once, or that somebody was killed at, are made once and whole."""

import _ssl  # to read a certificate without a connection
import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.deploy import certificates
from headwater.deploy.certificates import check_signature, issue, issued, serial_of, sign, tls_name
from headwater.deploy.revoked import read_revoked, refuses
from headwater.deploy.token import make_token, revoke, use_token
from headwater.errors import RunError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


def test_who_asks_at_the_same_time_gets_the_same(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: (name, issued(tmp_path, name).certificate.read_bytes()), "abab" * 2))
    assert len(set(found)) == 2
    for name in "ab":
        identity = issued(tmp_path, name)
        assert identity.server()
        assert identity.client()
        assert identity.key.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".making*"))


@pytest.mark.parametrize("last", ["authority.key", "authority.crt", "a.key", "a.crt"])
def test_what_was_begun_and_not_done_is_made_anew(tmp_path, monkeypatch, last):
    put = certificates._put

    def killed_at(made, to):
        if to.name == last:
            raise KeyboardInterrupt
        put(made, to)

    with monkeypatch.context() as patched:
        patched.setattr(certificates, "_put", killed_at)
        with pytest.raises(KeyboardInterrupt):
            issued(tmp_path, "a")
    identity = issued(tmp_path, "a")
    assert identity.server()
    assert identity.client()


def test_a_folder_that_cannot_be_is_told_in_words(tmp_path):
    token = make_token(tmp_path / "kept", "barn")
    (tmp_path / "file").write_text("notes")
    for act in (lambda: issued(tmp_path / "file" / "kept", "barn"), lambda: use_token(token, tmp_path / "file")):
        with pytest.raises(RunError, match=r"cannot keep certificates in .*file"):
            act()


def test_a_name_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(RunError, match="has no '/'"):
        issued(tmp_path, "../a")


@pytest.mark.parametrize("name", ["édge", "a+CN=coordinator", "back\\slash", 'the "new" one', "Coordinator", "x" * 64])
def test_a_certificate_has_the_name_of_its_site_and_nobody_elses(tmp_path, name):
    site = issued(tmp_path, name)
    subject = _ssl._test_decode_cert(str(site.certificate))["subject"]  # type: ignore[attr-defined]
    assert subject == ((("commonName", name),),)
    data = b"a flow"
    check_signature(site.authority, site.certificate, name, data, sign(site, data))
    with pytest.raises(RunError, match="not signed by 'coordinator'"):
        check_signature(site.authority, site.certificate, "coordinator", data, sign(site, data))


def test_no_two_sites_have_the_same_name_for_tls():
    names = ["press hall", "press-hall", "Press hall", "press hall ", "é", "è", "x" * 64, "x" * 63]
    names += [tls_name(name) for name in names]  # a site may even be called what another's name becomes
    assert len({tls_name(name) for name in names}) == len(set(names))
    assert all(len(tls_name(name)) <= 63 for name in names)


def test_a_name_that_no_certificate_can_hold_is_refused(tmp_path):
    with pytest.raises(RunError, match="64 characters at most, 80 are in"):
        issued(tmp_path, "x" * 80)


def test_a_site_does_not_take_the_place_of_the_authority(tmp_path):
    kept = issued(tmp_path, "barn").authority.read_bytes()
    with pytest.raises(RunError, match="no site may be called 'authority'"):
        issue(tmp_path, "authority")
    with pytest.raises(RunError, match="no site may be called 'authority'"):
        make_token(tmp_path, "authority")
    assert (tmp_path / "authority.crt").read_bytes() == kept


def test_a_clock_that_is_wrong_keeps_nobody_out(tmp_path, monkeypatch):
    issued(tmp_path, "anybody")  # and with it the authority
    monkeypatch.setattr(certificates, "_DAYS", 0)  # over the moment they are made
    coordinator, site = issued(tmp_path, "coordinator"), issued(tmp_path, "barn")

    async def greeted():
        met = asyncio.Event()

        async def meet(reader, writer):
            assert await reader.readexactly(5) == b"hello"
            met.set()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=coordinator.server())
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=site.client(), server_hostname="coordinator")
        writer.write(b"hello")
        async with asyncio.timeout(30):
            await met.wait()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    asyncio.run(greeted())
    signature = sign(coordinator, b"a part")
    check_signature(site.authority, coordinator.certificate, "coordinator", b"a part", signature)
    with pytest.raises(RunError, match="not signed by 'coordinator', or was altered"):
        check_signature(site.authority, coordinator.certificate, "coordinator", b"another", signature)


def test_a_site_that_was_revoked_gets_another_certificate_which_alone_is_taken(tmp_path):
    old = make_token(tmp_path, "press hall")
    serials = [serial_of(issued(tmp_path, "press hall").certificate)]
    for _ in range(2):
        assert not refuses(read_revoked(tmp_path), "press hall", serials[-1])
        revoke(tmp_path, "press hall")
        assert refuses(read_revoked(tmp_path), "press hall", serials[-1])
        new = make_token(tmp_path, "press hall")
        assert new != old
        assert make_token(tmp_path, "press hall") == new  # once more, the same
        serials.append(serial_of(issued(tmp_path, "press hall").certificate))
    assert [refuses(read_revoked(tmp_path), "press hall", serial) for serial in serials] == [True, True, False]
    assert not refuses(read_revoked(tmp_path), "paint hall", serials[0])


@pytest.mark.parametrize("name", ["pres hall", "coordinator", "authority"])
def test_a_name_that_no_token_was_made_for_is_not_revoked(tmp_path, name):
    issued(tmp_path, "coordinator")
    make_token(tmp_path, "press hall")
    with pytest.raises(RunError, match=f"no token was made for a site '{name}'"):
        revoke(tmp_path, name)
    assert not read_revoked(tmp_path)


def test_a_list_of_what_is_revoked_that_cannot_be_read_is_told_and_admits_nobody(tmp_path):
    make_token(tmp_path, "barn")
    (tmp_path / "revoked.json").write_text("{")
    for act in (read_revoked, lambda folder: make_token(folder, "barn")):
        with pytest.raises(RunError, match="which sites are revoked"):
            act(tmp_path)
