"""Parts as they travel: signed, checked at each start, and refused when anything was altered; tokens that admit a site."""

import msgspec
import pytest

from headwater.deploy.certificates import Identity, issue
from headwater.deploy.part import Part, SealedPart, checksum, file_of, read_part, sealed, unpack
from headwater.deploy.token import make_token, use_token
from headwater.errors import RunError
from waiting import PATIENCE_S

FILES = {"tanks.py": b"flow = None\n", "near/by.py": b"x = 1\n"}


def part(**given):
    files = {path: checksum(content) for path, content in FILES.items()}
    told = {"id": "tanks-1", "site": "barn", "flow": "tanks.py", "sites": {}, "listens": [], "files": files}
    return Part(**told | given)


def signed(certificates, signer="coordinator", **given):
    return sealed(part(**given), FILES, Identity.of(certificates, signer))


def test_a_part_is_the_same_at_its_site(certificates, tmp_path):
    authority = certificates / "authority.crt"
    assert unpack(signed(certificates), tmp_path / "part", "barn", authority) == part()
    assert read_part(tmp_path / "part", "barn", authority) == part()
    assert file_of(tmp_path / "part", "near/by.py").read_bytes() == FILES["near/by.py"]


@pytest.mark.parametrize("what", ["text", "signature", "signer", "file", "missing", "site", "authority"])
def test_a_part_that_was_altered_or_is_for_others_is_refused(certificates, tmp_path, what):
    authority, given = certificates / "authority.crt", signed(certificates)
    why = "it is not signed by 'coordinator', or was altered since"
    if what == "text":
        given = msgspec.structs.replace(given, part=given.part.replace(b"tanks.py", b"other.py"))
    elif what == "signature":
        given = msgspec.structs.replace(given, signature=given.signature[:-1])
    elif what == "signer":
        given = signed(certificates, "barn")
    elif what == "file":
        given, why = (
            SealedPart(given.part, given.signature, given.certificate, {**FILES, "tanks.py": b"evil"}),
            "not what",
        )
    elif what == "missing":
        given, why = SealedPart(given.part, given.signature, given.certificate, {}), "No such file"
    elif what == "site":
        given, why = signed(certificates, site="attic"), "is for site 'attic', and this is 'barn'"
    else:
        issue(tmp_path / "stranger", "coordinator")
        authority = tmp_path / "stranger" / "authority.crt"
    with pytest.raises(RunError, match=why):
        unpack(given, tmp_path / "part", "barn", authority)
    assert list(tmp_path.glob("*part*")) == []


def test_a_file_that_is_altered_at_the_site_is_refused_when_the_part_starts_again(certificates, tmp_path):
    authority = certificates / "authority.crt"
    unpack(signed(certificates), tmp_path / "part", "barn", authority)
    file_of(tmp_path / "part", "tanks.py").write_bytes(b"flow = 'evil'\n")
    with pytest.raises(RunError, match=r"its file 'tanks\.py' is not what the coordinator signed"):
        read_part(tmp_path / "part", "barn", authority)


def test_a_part_has_no_file_outside_its_folder():
    with pytest.raises(ValueError, match="not within its folder"):
        part(files={"../evil.py": ""})


def test_a_token_admits_the_site_it_was_made_for(certificates, tmp_path):
    token = make_token(certificates, "barn")
    assert make_token(certificates, "barn") == token  # so that it can be shown once more
    assert use_token(token + "\n", tmp_path / "identity") == "barn"
    identity = Identity.of(tmp_path / "identity", "barn")
    assert identity.key.read_bytes() == (certificates / "barn.key").read_bytes()
    assert identity.key.stat().st_mode & 0o077 == 0
    with pytest.raises(RunError, match="the token is for site 'barn', and this one is called 'attic'"):
        use_token(token, tmp_path / "identity", "attic")
    with pytest.raises(RunError, match="this is no token of a site"):
        use_token(token[:50], tmp_path / "identity")
    with pytest.raises(RunError, match="no site may be called 'coordinator'"):
        make_token(certificates, "coordinator")


def test_sources_that_are_replayed_at_a_rate_come_to_their_end(tmp_path):
    from headwater import engine
    from headwater.cli.part import whole_flow

    text = 'from headwater import Flow, io\nflow = Flow("counted")\nfound = io.Collect()\n'
    text += 'flow.read("r", io.Items([{"n": n} for n in range(10)])).write("out", found)\n'
    file_of(tmp_path, "counted.py").parent.mkdir()
    file_of(tmp_path, "counted.py").write_text(text)
    flow = whole_flow(part(flow="counted.py", files={"counted.py": ""}, rate=1e6), tmp_path)
    running = engine.start(flow)
    try:
        report = running.wait(PATIENCE_S)
        assert report is not None
        assert report.last.records_in == 10
    finally:
        running.abort()
