"""What packages say they export is there, and importing the package stays cheap."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import headwater

#: every package that a user may import from says what is public
PACKAGES = [
    "headwater",
    *sorted(f"headwater.{found.name}" for found in pkgutil.iter_modules(headwater.__path__) if found.ispkg),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists(name):
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for exported in module.__all__:
        assert getattr(module, exported) is not None


def test_describing_and_running_a_plain_flow_loads_neither_numba_nor_arrow_nor_pandas():
    code = (
        "import sys\n"
        "from headwater import Flow, col, engine, io\n"
        "f = Flow('f'); f.read('r', io.Items([{'x': 1.0}])).filter('f', col.x > 0).write('w', io.Discard())\n"
        "engine.run(f)\n"
        "print([m for m in ('numba', 'pyarrow', 'pandas', 'matplotlib') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "package", ["cep", "deploy", "engine", "io", "models", "net", "place", "rate", "sim", "spark", "steps"]
)
def test_a_package_resolves_when_it_is_named_and_not_before(package):
    code = (
        "import sys\n"
        "import headwater as hw\n"
        f"assert 'headwater.{package}' not in sys.modules\n"
        f"assert hw.{package}.__name__ == 'headwater.{package}' and '{package}' in dir(hw)\n"
        "print([m for m in ('pyspark', 'ortools', 'highspy', 'matplotlib', 'pandas') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
