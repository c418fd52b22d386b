"""The state folder of a site: who it is, the parts that it has, and what they keep; all that it goes on with."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from headwater.deploy.bridge.links import Address
from headwater.deploy.bridge.uplink import Uplink
from headwater.deploy.certificates import Identity
from headwater.deploy.part import Promise
from headwater.errors import RunError
from headwater.serve.home import FlowHome, flow_home
from headwater.serve.settings import settings_beside

_SITE, _IDENTITY, _PARTS, _SOURCES, _WARM = "site.json", "identity", "parts", "sources", "warm"
_AHEAD = "ahead"
_PROFILE = "profile.json"  #: among a part's sources
_LANES = "options.lanes = "
_PROGRAM = """from headwater.cli.part import flow_of

flow = flow_of(__file__)
"""
#: a part whose bridges wait for another site does not drain: it is given up soon, and its checkpoint has all
_ON_ENGINE = "every = {every}\nstop_within = 5.0\n"
#: a micro-batch comes to its end, and what Spark has is read back
_ON_SPARK = 'on = "spark"\nmaster = {master}\nconf = {{{conf}}}\nportable = true\nstop_within = 60.0\n'


class _Site(msgspec.Struct, frozen=True):
    name: str
    listen: tuple[str, int] | None
    uplink: str = ""
    master: str | None = None  #: of Spark, where that runs the parts
    conf: dict[str, str] = {}  #: and its settings
    lanes: int | Literal["auto"] | None = None  #: that a part has; None for one process with several workers


class SiteFolder:
    """A part is a flow's file in `parts`, with its sources and its state in folders of the same name beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._read: _Site | None = None

    @classmethod
    def around(cls, part: Path) -> SiteFolder:
        """Return the folder that a part's file is in."""
        return cls(part.absolute().parent.parent)

    def settle(
        self,
        name: str,
        listen: Address | None,
        uplink: str = "",
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        lanes: int | Literal["auto"] | None = None,
    ) -> None:
        """Note who this site is; a folder of another site is refused. With a `master`, its parts run on Spark.

        Parts that are here already run in so many `lanes` too, once they are started again.
        """
        site = _Site(name, listen, uplink, master, dict(conf or {}), lanes)
        try:
            self.parts.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (self.path / _SITE).exists() and self.name != name:
                raise RunError(
                    f"the state folder {self.path} is of site '{self.name}', and this one is called '{name}'"
                )
            _put_secret(self.path / _SITE, msgspec.json.encode(site))
            self._read = None
            for id in self.ids():
                self._set_lanes(settings_beside(self.file(id)))
        except OSError as error:
            raise RunError(f"cannot write the state folder {self.path}: {error.strerror}") from None

    @property
    def name(self) -> str:
        """The site's name."""
        return self._site.name

    @property
    def listen(self) -> Address | None:
        """Where other sites may reach the parts of this one."""
        return self._site.listen

    @property
    def uplink(self) -> Uplink:
        """How bridges may use the way to other sites."""
        return Uplink.read(self._site.uplink)

    @property
    def master(self) -> str | None:
        """Where Spark runs the parts of this site; None where the engine does."""
        return self._site.master

    @property
    def lanes(self) -> int | Literal["auto"] | None:
        """How many lanes a part has that was promised nothing; None for one process with several workers."""
        return self._site.lanes

    @property
    def _site(self) -> _Site:
        if self._read is None:
            try:
                self._read = msgspec.json.decode((self.path / _SITE).read_bytes(), type=_Site)
            except (OSError, msgspec.DecodeError) as error:
                raise RunError(f"{self.path} is no state folder of a site: {error}") from None
        return self._read

    @property
    def identity_folder(self) -> Path:
        """Where the site's key and certificates are."""
        return self.path / _IDENTITY

    def identity(self) -> Identity:
        """Return what the site shows to others."""
        return Identity.of(self.identity_folder, self.name)

    @property
    def parts(self) -> Path:
        """The folder of flows that the site serves."""
        return self.path / _PARTS

    def sources(self, id: str) -> Path:
        """Return the folder of a part's sources, its signature, and where the other sites are."""
        return self.path / _SOURCES / id

    def home(self, id: str) -> FlowHome:
        """Return what is kept of a part: its checkpoints above all."""
        return flow_home(self.path, id)

    @property
    def ahead(self) -> Path:
        """Where state is that went ahead of parts that will be installed, each in a folder of its own."""
        return self.path / _AHEAD

    def ids(self) -> list[str]:
        """Return the parts that are here, whole."""
        return sorted(file.stem for file in self.parts.glob("*.py"))

    def add(self, id: str, every: str, promise: Promise | None = None) -> None:
        """Have the part served whose sources are here; it is not started by itself."""
        self.home(id).note_stopped(True)
        _put(self.file(id), self._settings(every) + self._promised(id, promise) + self._in_lanes(promise))

    def prepare(self, id: str, every: str, promise: Promise | None = None) -> Path:
        """Return a file that makes the flow of a part whose sources are here; it is not served."""
        file = self.path / _WARM / f"{id}.py"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        _put(file, self._settings(every) + self._promised(id, promise) + self._in_lanes(promise))
        return file

    def _settings(self, every: str) -> str:
        if self.master is None:
            return _ON_ENGINE.format(every=json.dumps(every))
        conf = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in self._site.conf.items())
        return _ON_SPARK.format(master=json.dumps(self.master), conf=conf)

    def _promised(self, id: str, promise: Promise | None) -> str:
        """Return the settings by which a part's process asks for its promise; what its steps need is in a file."""
        if promise is None:
            return ""
        profile = self.sources(id) / _PROFILE
        promise.profile.write(profile)
        contract = promise.contract
        lines = {
            "promise": f"{contract.rate_hz:.6f}/s",
            "burst": contract.burst,
            "above": contract.above,
            "within": None if contract.latency_s is None else f"{round(contract.latency_s * 1e6)} us",
            "profile": str(profile),
            "trial": False,  # its sources are bridges
            "best_effort": promise.best_effort,
        }
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items() if value is not None)

    def _in_lanes(self, promise: Promise | None) -> str:
        """Return the setting of how many lanes a part has; one that is promised a rate has what its promise says."""
        return "" if self.lanes is None or promise is not None else f"{_LANES}{json.dumps(self.lanes)}\n"

    def _set_lanes(self, settings: Path) -> None:
        """Have a part that is here run in as many lanes as the site says by now."""
        lines = settings.read_text().splitlines(keepends=True)
        rest = "".join(line for line in lines if not line.startswith(_LANES))
        is_promised = any(line.startswith("promise = ") for line in lines)
        lanes = "" if self.lanes is None or is_promised else f"{_LANES}{json.dumps(self.lanes)}\n"
        if rest + lanes != "".join(lines):
            new = settings.with_suffix(".new")
            new.write_text(rest + lanes)
            new.replace(settings)

    def drop(self, id: str) -> None:
        """Have a part served no more; what is kept of it stays until it has stopped."""
        self.file(id).unlink(missing_ok=True)
        settings_beside(self.file(id)).unlink(missing_ok=True)

    def prepared_ids(self) -> list[str]:
        """Return the parts that were made ready, and have been neither added nor dropped since."""
        return [file.stem for file in (self.path / _WARM).glob("*.py")]

    def drop_prepared(self, id: str) -> None:
        """Remove the file by which a part was made ready, and what Python has compiled of it."""
        file = self.path / _WARM / f"{id}.py"
        file.unlink(missing_ok=True)
        settings_beside(file).unlink(missing_ok=True)
        shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    def sweep(self, served: set[str]) -> None:
        """Remove what is left of parts that are neither here nor at work any more."""
        for folder in (self.path / _SOURCES, self.path / "flows"):
            for path in folder.glob("*") if folder.is_dir() else ():
                if path.is_dir() and path.name not in served and not self.file(path.name).exists():
                    shutil.rmtree(path, ignore_errors=True)

    def file(self, id: str) -> Path:
        """Return the file that stands for a part."""
        return self.parts / f"{id}.py"


def _put(file: Path, settings: str) -> None:
    """Write the file of a part: its settings first, so that it is whole once it is there."""
    settings_beside(file).write_text(settings)
    new = file.with_suffix(".new")
    new.write_text(_PROGRAM)
    new.replace(file)


def _put_secret(file: Path, content: bytes) -> None:
    """Write a file for its owner alone to read: settings of Spark may have passwords among them."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
        to.write(content)
    new.replace(file)
