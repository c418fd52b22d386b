"""A kernel: a function that has a compiled form for each signature, and a plain one that answers while there is none."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType
from typing import Any

import numpy as np

from headwater.data.jit.signature import LOOKS, Signature, learn, signature_of

_thread = threading.local()


def _numba_is_installed() -> bool:
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # shut out on purpose: sys.modules["numba"] is None
        return False


#: whether kernels are compiled: Numba is installed, and not switched off as its own users do it
COMPILED = _numba_is_installed() and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


@contextmanager
def answering_at_once() -> Iterator[None]:
    """Let kernels that this thread calls answer uncompiled until they are compiled, instead of waiting for the compiler."""
    before, _thread.at_once = getattr(_thread, "at_once", False), True
    try:
        yield
    finally:
        _thread.at_once = before


def uncompiled_answers() -> int:
    """Return how often kernels have answered uncompiled in this thread so far."""
    return getattr(_thread, "answers", 0)


class Kernel:
    """A function over arrays and numbers, compiled when it is first called with arguments of some types.

    It is called with positional arguments alone.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], *, small: bool = False) -> None:
        update_wrapper(self, function)
        assert isinstance(function, FunctionType)
        self.py_func = function
        self.small = small  #: called by other kernels alone, see `small_kernel`
        self.source: str | None = None  #: see `cache.source_of`
        self.dispatcher: Any = None  #: what Numba knows it as, in the process that compiles
        self.linkable = True  #: until machine code of it turns out to be such that only Numba can load it
        self._forms: dict[tuple[Any, ...], Callable[..., Any]] = {}  #: compiled, by what arguments look like
        self._loaded: dict[Signature, Callable[..., Any]] = {}
        self.stand_in: Callable[..., Any] | None = None  #: runs while nothing is compiled, see `uncompiled`
        self._plain: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Answer with the compiled form for such arguments, if there is one."""
        try:
            form = self._forms[tuple([LOOKS[type(each)](each) for each in args])]
        except KeyError:
            return self._dispatch(args)
        return form(*args)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.__qualname__}>"

    def _dispatch(self, args: tuple[Any, ...]) -> Any:
        """Answer a call with arguments that look like none before."""
        from headwater.data.jit import service

        args = self._with_defaults(args)
        signature = signature_of(args)
        if signature is None:
            return service.numba_form(self)(*args)
        if getattr(_thread, "at_once", False) and service.is_asked(self, signature):
            return self.plain(*args)  # without a look into the cache at every call
        form = self.load(signature)
        if form is None and getattr(_thread, "at_once", False):
            service.ask(self, signature)
            return self.plain(*args)
        if form is None:
            form = service.wait_for(self, signature)
        learn(args)
        self._forms[tuple([LOOKS[type(each)](each) for each in args])] = form
        return form(*args)

    def _with_defaults(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the defaults of arguments that were left out."""
        missing = self.py_func.__code__.co_argcount - len(args)
        return args + (self.py_func.__defaults__ or ())[-missing:] if missing > 0 else args

    def load(self, signature: Signature) -> Callable[..., Any] | None:
        """Return the compiled form for a signature if it is in memory or in the cache."""
        form = self._loaded.get(signature)
        if form is None:
            from headwater.data.jit import service

            form = service.from_cache(self, signature)
            if form is not None:
                self._loaded[signature] = form
        return form

    def keep(self, signature: Signature, form: Callable[..., Any]) -> None:
        """Use a compiled form from the next call on."""
        self._loaded[signature] = form

    def plain(self, *args: Any) -> Any:
        """Answer uncompiled; numbers overflow silently, as they do in compiled code."""
        _thread.answers = uncompiled_answers() + 1
        with np.errstate(all="ignore"):
            return self._uncompiled({})(*args)

    def _uncompiled(self, in_progress: dict[int, Callable[..., Any]]) -> Callable[..., Any]:
        """Return the function with the kernels that it calls uncompiled too: they would only be asked for in vain."""
        if self.stand_in is not None:
            return self.stand_in
        if self._plain is None:
            if id(self) in in_progress:
                return in_progress[id(self)]
            function = self.py_func
            names = dict(function.__globals__)
            plain = FunctionType(function.__code__, names, self.__name__, function.__defaults__, function.__closure__)
            in_progress[id(self)] = plain
            for name in function.__code__.co_names:
                if isinstance(names.get(name), Kernel):
                    names[name] = names[name]._uncompiled(in_progress)
            self._plain = plain
        return self._plain
