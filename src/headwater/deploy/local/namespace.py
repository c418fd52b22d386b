"""A network namespace for one site: a loopback of its own, and one device whose packets somebody here carries.

Nothing of it outlives its users: a namespace ends with the last process in it, its device with whoever holds it open. So
nothing has to be removed, whatever ends them, be it `kill -9`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_OWN = "/proc/thread-self/ns/net"  #: namespaces are a thread's own, and of what it starts
_TUN = "/dev/net/tun"
_DEVICE, _LOOPBACK = b"sites", b"lo"
_WAITING = 10_000  #: packets that the device keeps for us: what it has no room for is lost, and sent again late

# of linux/sched.h, linux/if_tun.h, linux/if.h and linux/sockios.h
_NEW_NET = 0x40000000
_SET_TUN, _IS_TUN, _NO_HEADER = 0x400454CA, 0x0001, 0x1000
_SET_FLAGS, _UP, _RUNNING = 0x8914, 0x01, 0x40
_SET_ADDRESS, _SET_MASK, _SET_MTU, _SET_QUEUE = 0x8916, 0x891C, 0x8922, 0x8943
_MASK = "255.255.255.0"

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """One namespace; OSError where this process may make none."""

    def __init__(self, address: str, mtu: int) -> None:
        self.address, self.mtu = address, mtu
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.unshare(_NEW_NET))
            try:
                self._fd = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    self.packets = _device(address, mtu)  #: read what the site sends, write what it gets; whole packets
                except BaseException:
                    os.close(self._fd)
                    raise
            finally:
                _check(_libc.setns(before, _NEW_NET))
        finally:
            os.close(before)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Have what this thread opens and starts meanwhile be in the namespace; other threads are where they were."""
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(self._fd, _NEW_NET))
            try:
                yield
            finally:
                _check(_libc.setns(before, _NEW_NET))
        finally:
            os.close(before)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.packets)
        os.close(self._fd)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _device(address: str, mtu: int) -> int:
    """Make the device of the namespace that this thread is in, and wake its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("=16sH22x", _LOOPBACK, _UP | _RUNNING))
        fd = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _SET_TUN, struct.pack("=16sH22x", _DEVICE, _IS_TUN | _NO_HEADER))
            for what, numbers in ((_SET_ADDRESS, address), (_SET_MASK, _MASK)):
                family, packed = socket.AF_INET, socket.inet_aton(numbers)
                fcntl.ioctl(control, what, struct.pack("=16sHH4s16x", _DEVICE, family, 0, packed))
            for what, number in ((_SET_MTU, mtu), (_SET_QUEUE, _WAITING)):
                fcntl.ioctl(control, what, struct.pack("=16si20x", _DEVICE, number))
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("=16sH22x", _DEVICE, _UP | _RUNNING))
        except BaseException:
            os.close(fd)
            raise
    return fd
