"""The C functions that compiled kernels call: Python's, the mathematical ones, and Numba's, loaded without Numba itself."""

from __future__ import annotations

import builtins
import ctypes
import importlib.machinery
import importlib.util
import pickle
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any


class UnlinkableError(Exception):
    """This machine code cannot be loaded by ourselves; Numba can."""


@cache
def address_of(symbol: str) -> int:
    """Return where a function or object is in memory; raises UnlinkableError if it is nowhere."""
    address = _numba_symbols().get(symbol)
    if address is not None:
        return address
    for library in _libraries():
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(library, symbol))
        except ValueError:
            continue
    raise UnlinkableError(f"nothing here is called {symbol}")


def make_function(name: str, address: int, environment: Any) -> Any:
    """Return machine code as a Python function; `environment` is what it finds its constants in."""
    return _extension("_dynfunc").make_function(
        sys.modules[__name__], name, "compiled kernel", address, environment, ()
    )


def new_environment(constants: list[Any]) -> Any:
    """Return where machine code looks for its constants."""
    environment = _extension("_dynfunc").Environment({})
    environment.consts.extend(constants)
    return environment


_unpickled: dict[int, Any] = {}


def _unpickle(address: int, size: int, digest: int) -> Any:
    """Return a Python object that machine code names: the type of arrays, an exception.

    It is part of the code, no data, and as much to be trusted. Numba's own function would import all of Numba for it.
    """
    if address not in _unpickled:
        _unpickled[address] = pickle.loads(ctypes.string_at(address, size))
    return _unpickled[address]


_unpickle_callback = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(_unpickle)


@cache
def _numba_symbols() -> dict[str, int]:
    symbols = {"_Py_NoneStruct": id(None)}
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            symbols[f"PyExc_{name}"] = id(value)  # the class itself, not the variable that points to it
    for extension in ("_helperlib", "_dynfunc"):
        symbols |= {f"numba_{name}": at for name, at in _extension(extension).c_helpers.items()}
    symbols["numba_unpickle"] = ctypes.cast(_unpickle_callback, ctypes.c_void_p).value or 0
    memory = _extension("core.runtime._nrt_python")
    memory.memsys_use_cpython_allocator()  # as Numba does when it is imported
    return symbols | {name if name[0] == "_" else f"NRT_{name}": at for name, at in memory.c_helpers.items()}


@cache
def _extension(name: str) -> Any:
    """Load one extension module of Numba, without what surrounds it."""
    full = f"numba.{name}"
    if full in sys.modules:
        return sys.modules[full]
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = _numba_folder().joinpath(*name.split(".")).with_suffix(suffix)
        if path.exists():
            return _load(full, path)
    raise UnlinkableError(f"this Numba has no {full}")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnlinkableError(f"{path} cannot be loaded")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module  # C code looks for it there, and would import all of Numba to find it
    except ImportError as error:
        raise UnlinkableError(f"{path} cannot be loaded: {error}") from error
    return module


@cache
def _numba_folder() -> Path:
    spec = importlib.util.find_spec("numba")
    if spec is None or spec.origin is None:
        raise UnlinkableError("Numba is not installed")
    return Path(spec.origin).parent


@cache
def _libraries() -> list[ctypes.CDLL]:
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libc.so.6"):
        try:
            libraries.append(ctypes.CDLL(name))
        except OSError:
            continue
    return libraries
