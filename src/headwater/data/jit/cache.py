"""Machine code on disk, once per machine and user: one file for each kernel, its signature and what it was compiled from."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.data.jit.signature import Signature

if TYPE_CHECKING:
    from headwater.data.jit.kernel import Kernel

_FORMAT = b"headwater kernel 1\n"
_KEPT_DAYS = 60  #: code of another Numba, processor or Python that was not used for so long is removed


@dataclass(frozen=True, slots=True)
class MachineCode:
    """One compiled form of a kernel: an object file and what is needed to call into it."""

    object: bytes
    entry: str  #: the symbol of the function that takes Python's arguments
    environment: str  #: the symbol that points to `constants`
    constants: tuple[str, ...]  #: types of the arrays that it returns


def read(kernel: Kernel, signature: Signature) -> MachineCode | None:
    """Return what was compiled for a signature before, by whichever process; None if nothing was, or it is damaged."""
    entry = read_file(path_of(kernel, signature))
    if entry is None:
        return None
    header, body = entry
    try:
        return MachineCode(body, header["entry"], header["environment"], tuple(header["constants"]))
    except KeyError:
        return None


def write(kernel: Kernel, signature: Signature, code: MachineCode) -> None:
    """Keep machine code; readers see all of it or nothing. Where no folder can be written it is not kept."""
    header = asdict(code)
    write_file(path_of(kernel, signature), header, header.pop("object"))


def read_file(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """Return the header and the content of a file of the cache; None if there is none, or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if not content.startswith(_FORMAT):
        return None
    head, _, body = content[len(_FORMAT) :].partition(b"\n")
    try:
        header = json.loads(head)
        return (header, body) if hashlib.sha256(body).hexdigest() == header.pop("sha256") else None
    except (ValueError, KeyError):
        return None


def write_file(path: Path, header: dict[str, Any], body: bytes) -> None:
    """Write a file of the cache; others see all of it or nothing. Where that cannot be done, it is not kept."""
    head = json.dumps(header | {"sha256": hashlib.sha256(body).hexdigest()}).encode()
    with suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_FORMAT + head + b"\n" + body)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)


def path_of(kernel: Kernel, *compiled_for: Any) -> Path:
    """Return the file for a kernel as it is now, compiled for some types."""
    text = repr((source_of(kernel), *compiled_for)).encode()
    return folder() / f"{kernel.__module__}.{kernel.__qualname__}-{hashlib.sha256(text).hexdigest()[:20]}"


def path_for_numba(kernel: Kernel, compiled_for: Any) -> Path:
    """Return the file for a form that only Numba can load."""
    return path_of(kernel, compiled_for, "numba")


@cache
def folder() -> Path:
    """Return the folder of this Python, Numba and processor, made if need be.

    `HEADWATER_CACHE` names the folder around it; else it is the user's cache folder. Code from it is run, so a folder that
    others may write to is not used: then what is compiled lasts as long as this process.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    base = os.environ.get("HEADWATER_CACHE") or os.path.join(home, "headwater")
    for place in (Path(base), Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}"):
        path = place / "kernels" / _machine()
        with suppress(OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(place) and _is_ours(path) and os.access(path, os.W_OK):
                return path
    return _passing_folder()


def _is_ours(place: Path) -> bool:
    status = place.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _passing_folder() -> Path:
    import atexit
    import shutil

    path = Path(tempfile.mkdtemp(prefix="headwater-kernels-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def remove_unused() -> None:
    """Remove the code of other Pythons, Numbas and processors that was not looked at for long."""
    oldest = time.time() - _KEPT_DAYS * 86_400
    for other in folder().parent.iterdir():
        with suppress(OSError):
            if other != folder() and other.stat().st_mtime < oldest:
                for file in other.iterdir():
                    file.unlink()
                other.rmdir()
    with suppress(OSError):
        os.utime(folder())


@cache
def _machine() -> str:
    """Name what machine code depends on besides its source."""
    parts = [sys.implementation.cache_tag, platform.machine(), f"numpy{np.__version__}"]
    for package in ("numba", "llvmlite"):
        with suppress(PackageNotFoundError):
            parts.append(f"{package}{version(package)}")
    return "-".join([*map(str, parts), hashlib.sha256(_processor().encode()).hexdigest()[:8]])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    )


# -- what a kernel is compiled from --------------------------------------------------------------------------------------


def source_of(kernel: Kernel) -> str:
    """Return a fingerprint of all that a kernel is compiled from: itself, the kernels it calls, the constants it names.

    Numba's own cache looks at the file of the kernel alone: it would run old code after a kernel elsewhere has changed.
    """
    if kernel.source is None:
        kernel.source = hashlib.sha256(repr(_description(kernel, set())).encode()).hexdigest()
    return kernel.source


def _description(value: Any, seen: set[int]) -> Any:
    """Describe a value that a kernel names, so that two that compile to different code are described differently."""
    from headwater.data.jit.kernel import Kernel

    if isinstance(value, Kernel):
        if id(value) in seen:
            return value.__qualname__
        seen.add(id(value))
        function = value.py_func
        scope = function.__globals__ | _closure(function)
        return value.small, _code(function.__code__, scope, seen), repr(function.__defaults__)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, tuple | list):
        return [_description(each, seen) for each in value]
    return type(value).__name__, repr(value)


def _code(code: CodeType, scope: dict[str, Any], seen: set[int]) -> Any:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    plain = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    names = (*code.co_names, *code.co_freevars)
    values = [(name, _description(scope[name], seen)) for name in names if name in scope]
    for name, module in ((name, scope[name]) for name in names if isinstance(scope.get(name), ModuleType)):
        if module.__name__.partition(".")[0] not in ("numpy", "math", "numba"):
            values += [
                (f"{name}.{n}", _description(getattr(module, n), seen)) for n in code.co_names if hasattr(module, n)
            ]
    return code.co_code, plain, code.co_names, code.co_varnames, values, [_code(each, scope, seen) for each in inner]


def _closure(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}
