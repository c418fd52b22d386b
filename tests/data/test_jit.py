"""Kernels are compiled once per machine, by another process; what is compiled is loaded without Numba."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headwater.data.jit import cache, link, service
from headwater.data.jit.kernel import COMPILED, Kernel, answering_at_once
from headwater.data.jit.signature import signature_of

pytestmark = pytest.mark.skipif(not COMPILED, reason="there is no compiler here")
BY_NUMBA = not link.LINKABLE  #: whether it takes Numba to load machine code, as it does off x86-64 Linux

LOOPS = """
import numpy as np
from headwater.data.jit import kernel
from parts import twice

@kernel
def doubled(values):
    out = np.empty_like(values)
    for i in range(len(values)):
        if values[i] < 0:
            raise ValueError("below zero")
        out[i] = twice(values[i])
    return out
"""
PARTS = """
from headwater.data.jit import kernel
FACTOR = 2

@kernel
def twice(value):
    return FACTOR * value
"""
CALL = """
import sys
import numpy as np
from loops import doubled
print(doubled(np.arange(3)).tolist(), "numba" in sys.modules)
"""


@Kernel
def square(value):
    return value * value


def sum_of_squares(values):
    total = 0
    for value in values:
        total += square(value)
    return total


@pytest.fixture
def loops(tmp_path):
    """A folder with two modules of kernels, and a cache of its own."""
    return written(tmp_path)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """A folder in whose cache the kernel of those modules is, and what was said when it was compiled; not to be changed."""
    folder = written(tmp_path_factory.mktemp("compiled"))
    return folder, called(folder)


@pytest.fixture(scope="module")
def compiled_for_numba(tmp_path_factory):
    """The same where only Numba can load what is compiled."""
    folder = written(tmp_path_factory.mktemp("compiled_for_numba"))
    return folder, called(folder, NUMBERS, **OFF)


@pytest.fixture
def compiled(loops, compiled_once):
    """Such a folder, in whose cache the kernel is already."""
    shutil.copytree(compiled_once[0] / "cache", loops / "cache")
    return loops


def written(folder: Path) -> Path:
    (folder / "loops.py").write_text(LOOPS)
    (folder / "parts.py").write_text(PARTS)
    return folder


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": path, "HEADWATER_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}


def called(folder: Path, code: str = CALL, **more: str) -> str:
    run = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, env=environment(folder) | more, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.glob("cache/kernels/*/*") if not path.name.startswith(".")]


def test_a_kernel_is_compiled_once_and_neither_then_nor_later_is_numba_imported_here(compiled_once):
    loops, said = compiled_once
    assert said == f"[0, 2, 4] {BY_NUMBA}"
    (file,) = kept(loops)
    written_ns = file.stat().st_mtime_ns
    assert called(loops) == f"[0, 2, 4] {BY_NUMBA}"
    assert [path.stat().st_mtime_ns for path in kept(loops)] == [written_ns]
    assert not list(loops.glob("**/*.nb*")), "nothing is written beside the source, which may be read-only"


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed_in_another_file(compiled):
    (compiled / "parts.py").write_text(PARTS.replace("FACTOR * value", "FACTOR * value + 1"))
    assert called(compiled).startswith("[1, 3, 5]")
    (compiled / "parts.py").write_text(PARTS.replace("FACTOR = 2", "FACTOR = 3"))
    assert called(compiled).startswith("[0, 3, 6]")


def test_processes_that_start_together_give_the_same_answer_and_leave_a_whole_cache(loops):
    run = [sys.executable, "-c", CALL]
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment(loops)) for _ in range(3)]
    assert {process.communicate()[0].strip() for process in started} == {f"[0, 2, 4] {BY_NUMBA}"}
    assert len(kept(loops)) == 1
    assert not list(loops.glob("cache/kernels/*/.writing-*"))


@pytest.mark.thorough
@pytest.mark.skipif(BY_NUMBA, reason="files are Numba's own: see the test of those below")
def test_a_damaged_file_of_the_cache_is_compiled_anew(compiled):
    (file,) = kept(compiled)
    whole = file.read_bytes()
    for damaged in (whole[:-100], b"", whole.replace(b"\x7fELF", b"\x7fELG")):
        file.write_bytes(damaged)
        assert called(compiled) == f"[0, 2, 4] {BY_NUMBA}"
        assert file.read_bytes()[:40] == whole[:40]


def test_a_cache_that_others_may_write_to_is_not_used(loops):
    (loops / "cache").mkdir()
    (loops / "cache").chmod(0o777)
    (loops / "tmp").mkdir()
    assert called(loops, TMPDIR=str(loops / "tmp")) == f"[0, 2, 4] {BY_NUMBA}"
    assert not kept(loops)


def test_errors_of_a_loaded_kernel_arrive_and_leave_it_usable(compiled):
    code = CALL.replace(
        "print(", "\ntry:\n    doubled(np.array([-1]))\nexcept ValueError as error:\n    print(error)\nprint("
    )
    error, answer = called(compiled, code).splitlines()
    assert error == "below zero"
    assert answer.startswith("[0, 2, 4]")


def test_a_loaded_kernel_gives_back_all_memory_and_keeps_no_argument(compiled):
    code = """
import resource, sys
import numpy as np
from loops import doubled
values = np.arange(100_000)
doubled(values)
before, held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sys.getrefcount(values)
for _ in range(2_000):
    doubled(values)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(sys.getrefcount(values) - held, grown < 50_000)
"""
    assert called(compiled, code) == "0 True"


USED = """
import numpy as np
from loops import doubled
from headwater.data.jit.usage import Usage
work = Usage("some work")
work.save()
doubled(np.arange(3))
work.save()  # while the work goes on
"""
RECENT = """
import sys
from headwater.data.jit.usage import load_recent
load_recent()
print("loops" in sys.modules)
import loops
load_recent()
print(bool(loops.doubled._loaded))
"""


def test_kernels_of_work_that_goes_on_are_loaded_of_modules_that_are_imported_and_no_module_for_them(compiled):
    called(compiled, USED)
    assert called(compiled, RECENT).split() == ["False", str(not BY_NUMBA)]


def test_kernels_take_their_arrays_as_named_tuples_and_are_kept_all_the_same(loops):
    (loops / "named.py").write_text(
        "from typing import NamedTuple\n"
        "import numpy as np\n"
        "from headwater.data.jit import kernel\n"
        "class Inner(NamedTuple):\n    scale: int\n"
        "class State(NamedTuple):\n    values: np.ndarray\n    inner: Inner\n"
        "@kernel\n"
        "def total(state):\n"
        "    found = 0\n"
        "    for value in state.values:\n        found += state.inner.scale * value\n"
        "    return found\n"
    )
    code = (
        "import sys\nimport numpy as np\nfrom named import *\n"
        "print(*[total(State(np.arange(4), Inner(n))) for n in (2, 3)], 'numba' in sys.modules)"
    )
    assert called(loops, code) == f"12 18 {BY_NUMBA}"
    assert len(kept(loops)) == 1
    assert called(loops, code) == f"12 18 {BY_NUMBA}"


def test_the_flow_goes_before_the_compiler_from_the_start():
    assert service._PROGRAM.index("nice") < service._PROGRAM.index("headwater"), "to load it takes the most"


def test_a_kernel_of_a_script_is_compiled_by_the_script_itself(loops):
    assert called(loops, LOOPS + "print(doubled(np.arange(3)).tolist())") == "[0, 2, 4]"


def test_a_kernel_that_cannot_be_compiled_is_asked_for_once_by_who_does_not_wait_and_told(monkeypatch, caplog):
    def fail(request):
        raise ImportError("Numba needs another NumPy")

    asked, made = [], service._Request
    monkeypatch.setattr(service._Request, "is_there", lambda request: True)
    monkeypatch.setattr(service._Request, "answer", fail)
    monkeypatch.setattr(service, "from_cache", lambda kernel, signature: None)
    monkeypatch.setattr(service, "_Request", lambda kernel, signature: asked.append(kernel) or made(kernel, signature))
    monkeypatch.setattr(service, "_requests", {})
    kernels = [Kernel(sum_of_squares), Kernel(sum_of_squares)]
    for _ in range(3):
        with answering_at_once():
            assert [kernel(np.arange(4)) for kernel in kernels] == [14, 14]
        service.wait_until_compiled()
    assert (asked, service.waiting()) == (kernels, 0)
    assert caplog.text.count("cannot be compiled") == 1
    with pytest.raises(ImportError, match="another NumPy"):
        kernels[0](np.arange(4))


def test_a_kernel_that_is_not_compiled_yet_answers_all_the_same(monkeypatch):
    asked = []
    monkeypatch.setattr(service, "from_cache", lambda kernel, signature: None)
    monkeypatch.setattr(service, "ask", lambda kernel, signature: asked.append((kernel, signature)))

    total = Kernel(sum_of_squares)
    with answering_at_once():
        assert total(np.arange(4)) == 14
    assert asked == [(total, ("<i8 1C",))], "the kernels that it calls are compiled with it, not by themselves"


COUNTED = """
from numba.core import event
import numpy as np
from headwater.data.jit import service
from loops import doubled

compiled = event.RecordingListener()
event.register("numba:compile", compiled)
children = []
service._Child = lambda make=service._Child: children.append(1) or make()
print(doubled(GIVEN).tolist(), f"{len(children)} asked,", "compiled here" if compiled.buffer else "not compiled here")
"""
NUMBERS = COUNTED.replace("GIVEN", "np.arange(3)")
TIMES = COUNTED.replace("GIVEN", "np.arange(3).astype('m8[s]')").replace(".tolist()", ".view('i8').tolist()")
OFF = {"HEADWATER_LINKER": "off"}


@pytest.mark.thorough
def test_where_only_numba_can_load_machine_code_a_kernel_is_compiled_once_per_machine_all_the_same(
    loops, compiled_for_numba
):
    folder, said = compiled_for_numba
    assert said == "[0, 2, 4] 1 asked, not compiled here"
    shutil.copytree(folder / "cache", loops / "cache")
    assert called(loops, NUMBERS, **OFF) == "[0, 2, 4] 0 asked, not compiled here"
    (loops / "parts.py").write_text(PARTS.replace("FACTOR = 2", "FACTOR = 3"))
    assert called(loops, NUMBERS, **OFF) == "[0, 3, 6] 1 asked, not compiled here"
    assert len(kept(loops)) == 2
    assert not list(loops.glob("**/*.nb*")), "nothing is written beside the source, which may be read-only"


@pytest.mark.thorough
def test_a_damaged_file_that_only_numba_could_load_is_compiled_anew(loops, compiled_for_numba):
    shutil.copytree(compiled_for_numba[0] / "cache", loops / "cache")
    (file,) = kept(loops)
    file.write_bytes(file.read_bytes()[:-100])
    assert called(loops, NUMBERS, **OFF) == "[0, 2, 4] 0 asked, compiled here"
    assert called(loops, NUMBERS, **OFF) == "[0, 2, 4] 0 asked, not compiled here"


@pytest.mark.thorough
def test_machine_code_that_turns_out_to_need_numba_is_kept_for_numba(loops):
    refusing = (
        "from headwater.data.jit import link\ndef refuse(*_):\n    raise link.UnlinkableError\nlink.load = refuse"
    )
    broken = NUMBERS.replace("compiled = ", f"{refusing}\ncompiled = ")
    assert called(loops, broken) == "[0, 2, 4] 1 asked, not compiled here"
    assert called(loops, broken) == "[0, 2, 4] 0 asked, not compiled here"


def test_arguments_that_only_numba_knows_are_compiled_for_once_per_machine(loops):
    (loops / "loops.py").write_text(LOOPS.replace("values[i] < 0", "False"))
    assert called(loops, TIMES) == "[0, 2, 4] 0 asked, compiled here"
    assert called(loops, TIMES) == "[0, 2, 4] 0 asked, not compiled here"


def test_a_kernel_that_only_numba_can_load_answers_at_once_too(loops):
    code = NUMBERS.replace("print(", "from headwater.data.jit import answering_at_once, wait_until_compiled\n"
                           "with answering_at_once():\n    print(doubled(np.arange(3)).tolist(), doubled._loaded)\n"
                           "wait_until_compiled()\nprint(len(doubled._loaded))\nprint(")  # fmt: skip
    assert called(loops, code, **OFF).splitlines() == ["[0, 2, 4] {}", "1", "[0, 2, 4] 1 asked, not compiled here"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros(3), "<f8 1C"),
        (np.zeros((2, 3), np.int32), "<i4 2C"),
        (np.zeros((2, 3), order="F"), "<f8 2F"),
        (np.zeros(6)[::2], "<f8 1A"),
        (np.frombuffer(b"abc", np.uint8), "|u1 1Cr"),
        (1, "int64"),
        (True, "bool"),
        (np.float32(1), "float32"),
        (np.uint64(1), "uint64"),
        ((1, 2.0), ("int64", "float64")),
    ],
)
def test_arguments_have_the_types_that_a_kernel_is_compiled_for(value, name):
    assert signature_of((value,)) == (name,)


def test_what_only_numba_knows_has_no_signature():
    assert signature_of((np.array(["a"], object),)) is None
    assert signature_of(([1],)) is None


def test_what_a_kernel_is_compiled_from_includes_the_arrays_and_numbers_that_it_names():
    def made(factor, table):
        def scaled(value):
            return factor * table[0] * value

        return cache.source_of(Kernel(scaled))

    same = made(2, np.arange(2))
    assert made(2, np.arange(2)) == same
    assert made(3, np.arange(2)) != same
    assert made(2, np.arange(3)) != same
