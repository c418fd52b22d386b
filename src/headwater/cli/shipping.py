"""What of a flow is handed to a cluster: its own modules, and the name by which a program there imports it."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

from headwater.deploy.bundle import sources_of


def shipment(flow: str, attribute: str) -> tuple[str, dict[str, bytes]]:
    """Return how a program elsewhere names a flow that was found here, and the files it consists of, by their paths.

    `attribute` is what its module calls it. There are no files of what is installed.
    """
    head = flow.rpartition(":")[0]
    path = Path(head or flow)
    if path.suffix == ".py" or path.is_file():
        files = sources_of(path)
        main, module = files.pop(path.name), _importable(path.stem)
        while any(Path(each).parts[0] in (module, f"{module}.py") for each in files):  # which it imports by that name
            module += "_flow"
        files[f"{module}.py"] = main
        return f"{module}:{attribute}", files
    file = getattr(sys.modules.get(head), "__file__", None)
    if file is None or Path(file).resolve().is_relative_to(Path(sysconfig.get_path("purelib")).resolve()):
        return flow, {}
    own = Path(file).resolve()
    root = own.parents[head.count(".") + (own.name == "__init__.py")]
    package = sorted((root / head.split(".")[0]).rglob("*.py"))  # all of it: a step may import more when it runs
    files = {each.relative_to(root).as_posix(): each.read_bytes() for each in package}
    return flow, files | sources_of(own, root)


def _importable(stem: str) -> str:
    """Return the name of a module in an archive, where a file may not be called as one of Python's own.

    >>> _importable("queue"), _importable("tank-levels.v2")
    ('queue_flow', 'tank_levels_v2')
    """
    name = re.sub(r"\W", "_", stem)
    return f"{name}_flow" if name in sys.stdlib_module_names else name
