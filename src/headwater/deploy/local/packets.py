"""What is to be known of packets to refuse one: the answer of TCP, as the machine would give it that they are for. Pure."""

from __future__ import annotations

import struct

SOURCE, TARGET = slice(12, 16), slice(16, 20)  #: where a packet of IPv4 has the addresses that it is from and for
_TCP = 6
_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10
_IP_BYTES = _TCP_BYTES = 20  #: of a head without options
_HOPS = 64


def resetting(packet: bytes) -> bytes | None:
    """Return the answer to a packet that ends its connection (RFC 9293, 3.10.7.1); None for what is no TCP, or ends it."""
    head = 4 * (packet[0] & 0x0F)
    if packet[9] != _TCP or len(packet) < head + _TCP_BYTES:
        return None
    origin, target, number, acknowledged, offset, flags = struct.unpack_from("!HHIIBB", packet, head)
    if flags & _RST:
        return None
    if flags & _ACK:
        answer = (target, origin, acknowledged, 0, _RST)
    else:
        length = len(packet) - head - 4 * (offset >> 4) + bool(flags & _SYN) + bool(flags & _FIN)
        answer = (target, origin, 0, (number + length) % 2**32, _RST | _ACK)
    ports_and_numbers, answer_flags = answer[:4], answer[4]
    ends = packet[TARGET] + packet[SOURCE]
    pseudo = ends + struct.pack("!HH", _TCP, _TCP_BYTES)
    tcp = struct.pack("!HHIIBBHHH", *ports_and_numbers, _TCP_BYTES // 4 << 4, answer_flags, 0, 0, 0)
    tcp = tcp[:16] + _checksum(pseudo + tcp) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, _IP_BYTES + _TCP_BYTES, 0, 0, _HOPS, _TCP, 0) + ends
    return ip[:10] + _checksum(ip) + ip[12:] + tcp


def _checksum(data: bytes) -> bytes:
    """Return the complement of the sum, in ones' complement, of all words of two bytes (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", total ^ 0xFFFF)
