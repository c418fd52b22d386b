"""Who may talk to whom: a small authority of one's own, a certificate for each site, and TLS that asks both for theirs.

Made with the program `openssl`. Only whoever deploys keeps the authority's key; a site gets its own key and certificate, and
the authority's certificate. The name in a certificate is the site's. Nobody's clock is asked whether one is valid by now, or
still: that of a site may be wrong by years, and what keeps strangers out is the key.
"""

from __future__ import annotations

import fcntl
import re
import ssl
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headwater.errors import RunError

_DAYS = 3650
_AUTHORITY = "authority"  #: what the files of the authority are called
_LONGEST = 64  #: characters of a name in a certificate
_LABEL = 63  #: characters of a name that TLS compares
_HASHED = re.compile("(^|-)[0-9a-f]{16}$")
_ANY_TIME = ssl.VerifyFlags(0x200000)  #: X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a site shows to others, and by what it knows them."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(cls, folder: str | Path, site: str) -> Identity:
        """Return the identity of a site from a folder that `issue` wrote; an error says what is missing there."""
        folder = Path(folder)
        identity = cls(folder / f"{site}.crt", folder / f"{site}.key", folder / "authority.crt")
        for path in (identity.certificate, identity.key, identity.authority):
            if not path.exists():
                raise RunError(f"site '{site}' has no {path.name} in {folder}; headwater.deploy.issue makes it")
        return identity

    def server(self) -> ssl.SSLContext:
        """Return how to answer calls: only of those who show a certificate of the same authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        return self._loaded(context)

    def client(self) -> ssl.SSLContext:
        """Return how to call: only a site whose certificate has the name that is called."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._loaded(context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= (
            _ANY_TIME  # a device without a clock of its own wakes up in 1970, and must join all the same
        )
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.authority)
        return context


def issued(folder: str | Path, site: str) -> Identity:
    """Return the identity of a site from a folder; it is made the first time."""
    _check(site)
    try:
        return Identity.of(folder, site)
    except RunError:
        return issue(folder, site, anew=False)


def issue(folder: str | Path, site: str, *, anew: bool = True) -> Identity:
    """Make the key and certificate of a site in a folder, and the authority when there is none yet.

    Whoever else makes some there waits; unless it is to be made `anew`, it may then be there.
    """
    folder = Path(folder)
    _check(site)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not anew:
                with suppress(RunError):
                    return Identity.of(folder, site)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as making:
                _make(folder, site, Path(making))
    except OSError as error:
        raise RunError(f"cannot keep certificates in {folder}: {error.strerror}") from None
    return Identity.of(folder, site)


def _check(site: str) -> None:
    """Refuse a name that cannot stand in a certificate, or in the name of a file."""
    if not site or "/" in site or "," in site or not site.isprintable() or site.startswith("."):
        raise RunError(f"a site's name has no '/', ',' or new line, and does not begin with '.'; got {site!r}")
    if site == _AUTHORITY:
        raise RunError(f"no site may be called '{_AUTHORITY}': its files would be those of who issues all certificates")
    if len(site) > _LONGEST:
        raise RunError(f"a site's name has {_LONGEST} characters at most, {len(site)} are in {site!r}")


def _make(folder: Path, site: str, making: Path) -> None:
    """Make what a site shows, and put it in its place once it is whole: the certificate last, by which the rest is known."""
    authority, authority_key = folder / f"{_AUTHORITY}.crt", folder / f"{_AUTHORITY}.key"
    if not authority.exists():
        _openssl(
            *("req", "-x509", *_KEY, "-keyout", making / "authority.key", "-out", making / "authority.crt"),
            *("-days", _DAYS, "-subj", "/CN=headwater"),
        )
        _put(making / "authority.key", authority_key)
        _put(making / "authority.crt", authority)
    certificate, key, request = making / "site.crt", making / "site.key", making / "site.csr"
    names = f"subjectAltName=DNS:{tls_name(site)}"
    # unless it is escaped, '+' begins another name, by which a site could be taken for somebody else
    subject = "/CN=" + site.replace("\\", "\\\\").replace("+", "\\+")
    _openssl("req", *_KEY, "-keyout", key, "-out", request, "-utf8", "-subj", subject, "-addext", names)
    _openssl(
        *("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", _DAYS),
        *("-copy_extensions", "copyall", "-out", certificate),
    )
    _put(key, folder / f"{site}.key")
    _put(certificate, folder / f"{site}.crt")


def _put(file: Path, to: Path) -> None:
    if to.suffix == ".key":
        file.chmod(0o600)
    file.replace(to)


def serial_of(certificate: Path) -> str:
    """Return the serial number of a certificate, in the form in which Python tells it of one that is shown."""
    text = _openssl("x509", "-in", certificate, "-noout", "-serial").decode()
    return text.strip().removeprefix("serial=")


def sign(identity: Identity, data: bytes) -> bytes:
    """Return the signature of some bytes by the key of an identity."""
    return _openssl("dgst", "-sha256", "-sign", identity.key, stdin=data)


def check_signature(authority: Path, certificate: Path, signer: str, data: bytes, signature: bytes) -> None:
    """Raise RunError unless `signer` signed these very bytes, with a certificate of this authority."""
    name = tls_name(signer)
    try:
        _openssl("verify", "-no_check_time", "-CAfile", authority, "-verify_hostname", name, certificate)
        with tempfile.TemporaryDirectory() as folder:
            key, signed = Path(folder, "key"), Path(folder, "signature")
            key.write_bytes(_openssl("x509", "-in", certificate, "-pubkey", "-noout"))
            signed.write_bytes(signature)
            _openssl("dgst", "-sha256", "-verify", key, "-signature", signed, stdin=data)
    except RunError as error:
        raise RunError(f"it is not signed by '{signer}', or was altered since: {error}") from None


def tls_name(site: str) -> str:
    """Return a site's name in the form that TLS compares: no two have the same, not even "Press hall" and "press-hall".

    >>> tls_name("press-hall"), tls_name("Press hall")
    ('press-hall', 'press-hall-12ea17575021db59')
    """
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in site.lower()).strip("-")
    if plain == site and len(site) <= _LABEL and not _HASHED.search(site):
        return site
    return f"{plain[:40]}-{sha256(site.encode()).hexdigest()[:16]}".strip("-")


def _openssl(*arguments: object, stdin: bytes = b"") -> bytes:
    command = ["openssl", *map(str, arguments)]
    try:
        process = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    except FileNotFoundError:
        raise RunError("certificates are made with the program 'openssl', which is not installed") from None
    if process.returncode:
        lines = (process.stderr or process.stdout).decode("utf-8", "replace").strip().splitlines()
        raise RunError(f"openssl {arguments[0]} failed: {lines[-1] if lines else ''}")
    return process.stdout
