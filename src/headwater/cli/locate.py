"""Finds the flow that a user names: `module:name`, `path/to/flow.py[:name]`, or a bundled one such as `riot:etl`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.cli.plugins import bundle, bundled_flow, bundles
from headwater.errors import FlowError, HeadwaterError, listed, suggestion
from headwater.flow import Flow


def find_flow(name: str, text: bytes | None = None) -> Flow:
    """Return the flow that a user means; a function without arguments is called for it.

    `text` is what its file held once, to be run in place of what it holds now.
    """
    return resolve_flow(name, text)[1]


def resolve_flow(name: str, text: bytes | None = None) -> tuple[str, Flow]:
    """Return what its module calls the flow that a user means, whether or not they say so, and the flow."""
    head, _, attribute = name.rpartition(":")
    package = bundle(head) if head.isidentifier() and not Path(head).exists() else None
    if package is not None:
        return attribute, bundled_flow(package, head, attribute)
    path = Path(head or name)
    if path.suffix == ".py" or path.is_file():
        return _in_module(_module_at(path, text), attribute if head else "", str(path))
    if not head:
        if name.endswith(".py"):
            raise _no_file(Path(name))
        bundled = [f", or a bundled one such as {each}:{bundle(each).names[0]}" for each in bundles()]  # type: ignore[union-attr]
        raise FlowError(f"cannot tell what flow {name!r} is; write module:name, path/to/flow.py{''.join(bundled)}")
    return _in_module(_module_named(head), attribute, head)


def _no_file(path: Path) -> FlowError:
    """Return what to say of a file that is not there, with the one beside it that may be meant."""
    try:
        beside = sorted(each.name for each in path.parent.iterdir() if each.suffix == ".py")
    except OSError:
        return FlowError(f"there is no file {str(path)!r}, nor a folder {str(path.parent)!r}")
    return FlowError(f"there is no file {str(path)!r} in {path.parent.absolute()}{suggestion(path.name, beside)}")


def _module_at(path: Path, text: bytes | None = None) -> ModuleType:
    if not path.is_file():
        raise _no_file(path)
    # a module of Python's own keeps its name: others import that, and not a flow
    name = f"{path.stem}_flow" if path.stem in sys.stdlib_module_names else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FlowError(
            f"{str(path)!r} is no Python file, and flows are written in Python; name a file that ends in .py"
        )
    module = importlib.util.module_from_spec(spec)
    _let_import_from(path.parent.resolve())
    sys.modules[name] = module
    try:
        if text is None:
            spec.loader.exec_module(module)
        else:
            exec(compile(text, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:  # a script that ends itself is no flow
        del sys.modules[name]  # as Python does with what could not be imported
        if isinstance(error, HeadwaterError):
            raise
        raise FlowError(f"{_line_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _let_import_from(folder: Path) -> None:
    """Let a flow's own neighbours be imported, before what is installed, and behind Python's own modules.

    Not before those, as when Python runs a file: a flow in `queue.py` would be what everybody else imports as `queue`.
    """
    installed = (at for at, place in enumerate(sys.path) if Path(place).name in ("site-packages", "dist-packages"))
    sys.path.insert(next(installed, len(sys.path)), str(folder))


def _line_in(path: Path, error: BaseException) -> str:
    """Return file:line of the user's own line that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return f"{path}:{lines[-1]}" if lines else str(path)


def _module_named(name: str) -> ModuleType:
    _let_import_from(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise FlowError(
            f"cannot import {name!r}: {error}; is the name right, and are you in the right folder?"
        ) from None
    except HeadwaterError:
        raise
    except (Exception, SystemExit) as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise FlowError(f"{name} ({at.filename}:{at.lineno}): {type(error).__name__}: {error}") from error


def _in_module(module: ModuleType, attribute: str, where: str) -> tuple[str, Flow]:
    if not attribute:
        flows = {n: v for n, v in vars(module).items() if isinstance(v, Flow)}
        if len(flows) == 1:
            return next(iter(flows.items()))
        if "flow" in vars(module):
            attribute = "flow"
        else:
            names = listed(flows) if flows else "none"
            raise FlowError(f"{where} should have one flow; it has {names}; name one as {where}:NAME")
    value: Any = getattr(module, attribute, None)
    if value is None:
        public = [n for n in vars(module) if not n.startswith("_")]
        flow_names = [n for n in public if isinstance(getattr(module, n), Flow)]
        likely = suggestion(attribute, public) or f"; its flows are {listed(flow_names)}"
        raise FlowError(f"{where} has no {attribute!r}{likely}")
    if callable(value) and not isinstance(value, Flow):
        value = value()
    if not isinstance(value, Flow):
        raise FlowError(
            f"{where}:{attribute} should be a Flow or a function that returns one; it is {type(value).__name__}"
        )
    return attribute, value
