"""Brings machine code into memory: places the parts of an object file, and fills in the addresses it leaves open.

Object files are ELF for x86-64, in the form in which LLVM writes code to be run at once: every address is 64 bits wide, so
two kinds of relocation are all there are. Whatever else turns up is refused, and Numba loads it instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from headwater.data.jit.cache import MachineCode
from headwater.data.jit.runtime import UnlinkableError, address_of, make_function, new_environment

_MACHINE = sys.platform, platform.machine(), sys.implementation.name

#: whether object files of this machine can be loaded here; `HEADWATER_LINKER=off` leaves all of them to Numba
LINKABLE = _MACHINE == ("linux", "x86_64", "cpython") and os.environ.get("HEADWATER_LINKER") != "off"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # types of sections
_WRITE, _ALLOCATE = 1, 2  # flags of sections
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2  # sections that a symbol may be in instead of one
_ADDRESS_64, _DISTANCE_64, _DISTANCE_32 = 1, 24, 2  # kinds of relocation: R_X86_64_64, _PC64 and _PC32
_PAGE = mmap.PAGESIZE

_placed: list[mmap.mmap] = []  #: code stays until the process ends: nobody knows who still runs it


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def load(name: str, code: MachineCode) -> Callable[..., Any]:
    """Return compiled code as a function; raises UnlinkableError for what only Numba can load."""
    if not LINKABLE:
        raise UnlinkableError(f"object files are not loaded on {sys.platform} {platform.machine()}")
    environment = new_environment([np.dtype(each) for each in code.constants])
    symbols = _place(code.object)
    if code.environment in symbols:
        ctypes.c_void_p.from_address(symbols[code.environment]).value = id(environment)
    # the function holds the environment, and is never freed itself while the code may run
    return make_function(name, symbols[code.entry], environment)  # type: ignore[no-any-return]


def _place(content: bytes) -> dict[str, int]:
    """Put an object file into memory and return the addresses of its symbols."""
    sections = _sections(content)
    table = next((s for s in sections if s.type == _SYMTAB), None)
    if table is None:
        raise UnlinkableError("an object file without symbols")
    symbols = list(_SYMBOL.iter_unpack(content[table.offset : table.offset + table.size]))
    strings = content[sections[table.link].offset :]
    at, code, data = _layout(sections, symbols)
    memory = mmap.mmap(-1, code + data)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for index, section in enumerate(sections):
        if index in at and section.type != _NOBITS:
            memory[at[index] : at[index] + section.size] = content[section.offset : section.offset + section.size]
    names = [_text(strings, symbol[0]) for symbol in symbols]
    addresses = list(_addresses(symbols, names, at, base))
    for section in sections:
        if section.type == _RELA and section.info in at:
            _relocate(content, section, memory, base, at[section.info], addresses)
    _placed.append(memory)
    _protect(base, code)
    return {name: address for name, address in zip(names, addresses, strict=True) if name and address is not None}


def _sections(content: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(content)
    magic, machine, start, entry_size, count = header[0], header[2], header[6], header[11], header[12]
    if magic[:6] != b"\x7fELF\x02\x01" or machine != 62:
        raise UnlinkableError("not an object file for x86-64")
    return [_Section(*_SECTION.unpack_from(content, start + i * entry_size)) for i in range(count)]


def _layout(sections: list[_Section], symbols: list[Any]) -> tuple[dict[int, int], int, int]:
    """Return where each section goes, first those that are only read or run, and how many bytes both parts take.

    Variables that have a size and no section come last; their place is kept under minus the symbol's number.
    """
    at: dict[int, int] = {}
    end = 0
    for writable in (0, _WRITE):
        for index, section in enumerate(sections):
            if section.flags & _ALLOCATE and section.flags & _WRITE == writable:
                end = _up(end, max(section.align, 1))
                at[index] = end
                end += section.size
        if not writable:
            code = end = _up(end, _PAGE)
    for number, (_, _, _, section_of, align, size) in enumerate(symbols):
        if section_of == _COMMON:
            end = _up(end, max(align, 1))
            at[-number] = end
            end += size
    return at, code, max(_PAGE, _up(end, _PAGE) - code)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()


def _addresses(symbols: list[Any], names: list[str], at: dict[int, int], base: int) -> Iterator[int | None]:
    for number, ((_, _, _, section, value, _), name) in enumerate(zip(symbols, names, strict=True)):
        if section == _UNDEFINED:
            yield address_of(name) if name else None
        elif section == _COMMON:
            yield base + at[-number]
        elif section == _ABSOLUTE:
            yield value
        else:
            yield base + at[section] + value if section in at else None


def _relocate(content: bytes, section: _Section, memory: mmap.mmap, base: int, to: int, addresses: list[Any]) -> None:
    for offset, info, addend in _RELOCATION.iter_unpack(content[section.offset : section.offset + section.size]):
        kind, target, place = info & 0xFFFFFFFF, addresses[info >> 32], to + offset
        if target is None:
            raise UnlinkableError("a relocation to something that is not in memory")
        if kind == _ADDRESS_64:
            struct.pack_into("<Q", memory, place, (target + addend) & (2**64 - 1))
        elif kind == _DISTANCE_64:
            struct.pack_into("<q", memory, place, target + addend - base - place)
        elif kind == _DISTANCE_32 and -(2**31) <= target + addend - base - place < 2**31:
            struct.pack_into("<i", memory, place, target + addend - base - place)
        else:
            raise UnlinkableError(f"a relocation of kind {kind}")


def _protect(base: int, size: int) -> None:
    """Let code be read and run, and written to no more."""
    change = ctypes.CDLL(None, use_errno=True).mprotect
    change.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if size and change(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise UnlinkableError(f"memory may not be made executable: error {ctypes.get_errno()}")
