"""Where Numba is imported: compiles kernels, here or as a process that others send their requests to."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.typing.typeof import typeof_impl
from numba.np.numpy_support import from_dtype

from headwater.data.jit import cache, numba_cache
from headwater.data.jit.cache import MachineCode
from headwater.data.jit.kernel import Kernel
from headwater.data.jit.numba_cache import NumbaCache
from headwater.data.jit.signature import Signature, hashable


@typeof_impl.register(Kernel)  # type: ignore[untyped-decorator]
def _type_of_kernel(kernel: Kernel, context: Any) -> Any:
    """Kernels call each other by name; to Numba each is what it would have made of the function itself."""
    return types.Dispatcher(dispatcher_of(kernel))


def dispatcher_of(kernel: Kernel) -> Any:
    """Return the kernel as Numba knows it."""
    if kernel.dispatcher is None:
        kernel.dispatcher = njit(**({"_nrt": False} if kernel.small else {"nogil": True}))(kernel.py_func)
    return kernel.dispatcher


def keeping_dispatcher_of(kernel: Kernel) -> Any:
    """Return the kernel as Numba knows it, to be called with whatever Numba knows: that is kept on disk, too."""
    dispatcher = dispatcher_of(kernel)
    if not isinstance(dispatcher._cache, NumbaCache):
        dispatcher._cache = NumbaCache(kernel)
    return dispatcher


def compiled_here(kernel: Kernel, signature: Signature, *, linkable: bool) -> Callable[..., Any]:
    """Return the form that Numba loads if it was kept for it; else compile it in this process, and keep it."""
    context = dispatcher_of(kernel).targetctx
    context.refresh()
    result = numba_cache.load(cache.path_for_numba(kernel, signature), context)
    if result is None:
        result = _compile(kernel, signature)
        _keep(kernel, signature, result, linkable=linkable)
    form: Callable[..., Any] = result.entry_point
    return form


def _compile(kernel: Kernel, signature: Signature) -> Any:
    dispatcher = dispatcher_of(kernel)
    arg_types = tuple(map(_numba_type, signature))
    dispatcher.compile(arg_types)
    return dispatcher.overloads[arg_types]


def _numba_type(name: Any) -> Any:
    if not isinstance(name, str):
        return _numba_tuple(name)
    kind, _, form = name.partition(" ")
    if form:
        ndim, layout, marks = int(form[0]), form[1], form[2:]
        return types.Array(from_dtype(np.dtype(kind)), ndim, layout, readonly="r" in marks, aligned="u" not in marks)
    return types.none if kind == "none" else from_dtype(np.dtype(kind))


def _numba_tuple(names: Signature) -> Any:
    if not (names and isinstance(names[0], str) and names[0].startswith("=")):
        return types.Tuple(tuple(map(_numba_type, names)))
    module, _, name = names[0][1:].partition(" ")[0].partition(":")
    kind = getattr(importlib.import_module(module), name)
    return types.BaseTuple.from_types(tuple(map(_numba_type, names[1:])), kind)


def _keep(kernel: Kernel, signature: Signature, result: Any, *, linkable: bool) -> bool:
    """Write what was compiled to the cache, in a form that Numba loads if our linker cannot; False if neither can."""
    if linkable and _keep_for_linker(kernel, signature, result):
        return True
    return numba_cache.save(cache.path_for_numba(kernel, signature), result)


def _keep_for_linker(kernel: Kernel, signature: Signature, result: Any) -> bool:
    """Write the object file to the cache, unless it holds addresses or objects of this process."""
    library = result.library
    constants = result.environment.consts if result.environment is not None else []
    plain = not result.lifted and not result.reload_init and not library.has_dynamic_globals
    if not (plain and all(isinstance(each, np.dtype) for each in constants)):
        return False
    _, kind, (content, _) = library.serialize_using_object_code()
    if kind != "object":
        return False
    symbols = result.fndesc.llvm_cpython_wrapper_name, result.target_context.get_env_name(result.fndesc)
    cache.write(kernel, signature, MachineCode(content, *symbols, tuple(each.str for each in constants)))
    return True


def serve() -> None:
    """Compile what is asked for on standard input, one JSON object to a line, and answer `done` or why not."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever modules print when they are imported is not an answer
    sys.path[:] = json.loads(sys.stdin.readline())
    cache.remove_unused()
    for line in sys.stdin:
        answer = _answer(json.loads(line))
        with suppress(OSError):  # who asked may be gone; others will ask for the same
            answers.write(f"{answer}\n")
            answers.flush()


def _answer(request: dict[str, Any]) -> str:
    try:
        kernel = getattr(importlib.import_module(request["module"]), request["name"])
        if not isinstance(kernel, Kernel) or cache.source_of(kernel) != request["source"]:
            return "here that is another kernel"
        signature = hashable(request["signature"])
        is_kept = _keep(kernel, signature, _compile(kernel, signature), linkable=request["linkable"])
        return "done" if is_kept else "it cannot be kept"
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
