"""The supervisor of a machine: holds the ledger, gives lanes what they have reserved, and tells who holds what.

One per machine, kept by root, and reached by a socket in the runtime folder; where root keeps none, one per user. Who speaks
is known by the system's word: everybody may look, and promises are asked for by whoever keeps the ledger, by root, and by a
group that was named. Started for a promise instead of by command, it is its owner's alone. A reservation lives as long as
the process that it is for, or who starts that again, by the system's own word. The ledger is written down at every change:
a supervisor that is killed and started again finds its lanes.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import hashlib
import logging
import os
import pwd
import signal
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from headwater.errors import FlowError, RateError
from headwater.rate import cgroups, process
from headwater.rate.exclusive import exclusive
from headwater.rate.grade import Grade, Name, grade_here, share
from headwater.rate.home import BOOK, LOCK, SOCKET, folder
from headwater.rate.ledger import Keeper, Ledger, Refusal, Reservation
from headwater.rate.messages import (
    Ask,
    Board,
    End,
    Granted,
    Lane,
    Noted,
    Refused,
    Reply,
    Request,
    Resume,
    Resumed,
    Settle,
    Status,
    Tell,
    line,
    request,
)
from headwater.rate.peer import peer
from headwater.rate.real_time import LOOK_S, RealTime, go_before_lanes

log = logging.getLogger(__name__)

_LOOK_S = 0.5  #: how often it looks for lanes that are gone
_LONGEST_LINE = 2**20


def lives(lane: Reservation) -> bool:
    """Say whether the process that a reservation is for still is that process, or who would start it again."""
    return is_up(lane) or (lane.keeper is not None and process.began(lane.keeper.pid) == lane.keeper.began)


def is_up(lane: Reservation) -> bool:
    """Say whether the process that a reservation is for still is that process."""
    return process.began(lane.pid) == lane.began


class Supervisor:
    """Answers what lanes ask; whoever calls brings the words, and who said them."""

    def __init__(self, home: Path, grade: Grade, cores: float | None = None, group: str | None = None) -> None:
        self.home, self.grade = home, grade
        self._gid = None if group is None else gid_of(group)
        place = str(home.resolve()).encode()
        self._sign = hashlib.sha256(place).hexdigest()[:6]  #: tells our groups from other folders'
        self.ledger = Ledger(grade.cores if cores is None else cores, self._read())
        self._unwritten = False  #: whether the book is of before a change
        self.reports: dict[str, Tell] = {}
        self._reported_s: dict[str, float] = {}  #: when that was
        self.real_time = RealTime(grade.groups) if grade.real_time else None
        self._released: set[str] = set()  #: whose groups may still be there: until its last thread is gone, one is busy
        self.look()
        for name in set(grade.names()) - set(self.ledger.reservations):
            if name.startswith(self._sign):
                grade.release(name)  # of a supervisor before this one
        grade.sweep()  # and of those of folders that are no more
        for lane in self.ledger.reservations.values():  # which of them were above their promise they will say again
            self._weigh(lane, above=False)
            if self.real_time is not None:
                self.real_time.take(lane)

    def answer(self, message: Request, pid: int, uid: int | None = None) -> Reply:
        """Answer one message of a process and its user, who is our own unless said."""
        self.look()
        user = os.geteuid() if uid is None else uid
        match message:
            case Status():
                return self.board(user)
            case Ask():
                return (
                    self._ask(message, pid, user)
                    if self._may_ask(user)
                    else _refusal(Refusal(message.cores, 0.0, why="closed"))
                )
            case Resume():
                return self._resume(message, pid, user)
        if not self._may_change(message.id, user):
            return (
                _refusal(Refusal(message.cores, self.ledger.left))
                if isinstance(message, Settle)
                else Noted(known=False)
            )
        match message:
            case Settle():
                return self._settled(message)
            case Tell():
                return self._tell(message)
            case End():
                self._free(message.id)
                return Noted(known=True)

    def _may_ask(self, uid: int) -> bool:
        return uid in (0, os.geteuid()) or (self._gid is not None and self._gid in _groups_of(uid))

    def _may_change(self, name: str, uid: int) -> bool:
        reservation = self.ledger.reservations.get(name)
        return reservation is not None and uid in (0, os.geteuid(), reservation.uid)

    def look(self) -> None:
        """Free what is held for processes that are gone, and that nobody starts again."""
        if self._unwritten:
            self._write_or_later()
        for dead in self.ledger.sweep(lives):
            self._free(dead.id)
        if self._released:
            self._released &= set(self.grade.names())
            for name in self._released:
                self.grade.release(name)

    def board(self, uid: int | None = None) -> Board:
        """Return all that is promised, as a user is told it, who is our own unless said."""
        lanes = []
        for reservation in self.ledger.reservations.values():
            lane = Lane(
                reservation.id,
                reservation.flow,
                reservation.contract,
                reservation.pid,
                reservation.cores,
                lanes=reservation.lanes,
            )
            if reservation.keeper is not None:
                lane.restarts, lane.down = reservation.keeper.restarts, not is_up(reservation)
            last = self.reports.get(reservation.id)
            if last is not None:
                lane.used, lane.kept, lane.broken, lane.above = last.used, last.kept, last.broken, last.above
                lane.causes, lane.close = last.causes, last.close
            lanes.append(lane)
        ledger, grade = self.ledger, self.grade
        may_ask = uid is None or self._may_ask(uid)
        return Board(ledger.cores, ledger.capacity, ledger.left, grade.name, grade.how, grade.better, lanes, may_ask)

    def _ask(self, message: Ask, pid: int, uid: int) -> Reply:
        began = process.began(pid)
        if began is None:
            return _refusal(Refusal(message.cores, self.ledger.left))
        name = f"{self._sign}-{uuid.uuid4().hex[:12]}"
        keeper = _keeper(message, uid)
        lane = Reservation(name, message.flow, message.contract, message.cores, pid, began, uid, message.lanes, keeper)
        refusal = self.ledger.refusal(lane)
        if refusal is None and self.grade.name == "shared" and not message.best_effort:
            fair = share(self.ledger.cores, lane.processes)
            refusal = Refusal(message.cores, fair, why="unprotected") if fair < message.cores else None
        if refusal is not None:
            return _refusal(refusal)
        self.ledger.ask(lane)
        try:
            self._write()
        except OSError as error:  # such as a full disk: who takes our place would not know of it
            self.ledger.free(name)
            log.warning("the ledger cannot be written, and nothing is promised: %s", error)
            return _refusal(Refusal(message.cores, self.ledger.left, why="unwritten", error=str(error)))
        return self._protected(lane, self.grade.protect, best_effort=message.best_effort)

    def _settled(self, message: Settle) -> Reply:
        refusal = self.ledger.settle(message.id, message.cores)
        if refusal is not None:
            self._free(message.id)
            return _refusal(refusal)
        lane = self.ledger.reservations[message.id]
        if lane.keeper is not None:
            findings = msgspec.structs.replace(lane.keeper.found, measured=message.measured)
            lane = self.ledger.reservations[message.id] = replace(lane, keeper=replace(lane.keeper, found=findings))
        return self._protected(lane, lambda lane: self.grade.weigh(lane, above=False))

    def _resume(self, message: Resume, pid: int, uid: int) -> Reply:
        """Hold for a process what was held for one that died, if they have the same keeper."""
        began = process.began(pid)
        for reservation in self.ledger.reservations.values():
            keeper = reservation.keeper
            if began is None or keeper is None or keeper.pid != message.keeper or is_up(reservation):
                continue
            if not self._may_change(reservation.id, uid):
                continue
            again = replace(reservation, pid=pid, began=began, keeper=replace(keeper, restarts=keeper.restarts + 1))
            self.ledger.reservations[reservation.id] = again
            granted = self._protected(again, self.grade.protect, best_effort=True)
            assert isinstance(granted, Granted)
            last, reported_s = self.reports.get(reservation.id), self._reported_s.get(reservation.id)
            silent_s = 0.0 if reported_s is None else time.monotonic() - reported_s
            return Resumed(granted, again.contract, again.lanes, keeper.found, last, silent_s)
        return Noted(known=False)

    def _protected(self, lane: Reservation, act: Callable[[Reservation], None], *, best_effort: bool = False) -> Reply:
        try:
            act(lane)
        except OSError as error:
            log.warning("lane %s has no protection: %s", lane.flow, error)
            if not best_effort:
                self._free(lane.id)
                fair = min(share(self.ledger.cores, lane.processes), lane.cores)
                return _refusal(Refusal(lane.cores, fair, why="unprotected"))
            self._write_or_later()
            return self._unprotected(lane, f"nothing protects it: {error}")
        self._write_or_later()
        if not lane.cores:
            return Granted(
                lane.id, 0.0, "none", "its work is done on other machines, and nothing is reserved for it here"
            )
        if self.grade.name == "shared":
            return self._unprotected(lane, self.grade.how)
        return Granted(lane.id, lane.cores, self.grade.name, self.grade.how)

    def _unprotected(self, lane: Reservation, how: str) -> Granted:
        """Grant what nothing protects: of grade "none" where the share that everybody gets now is less than it wants."""
        fair = share(self.ledger.cores, lane.processes)
        name: Name = "shared" if fair >= lane.cores else "none"
        return Granted(lane.id, lane.cores, name, f"{how}; beside what runs now that is about {fair:.2f} cores")

    def _tell(self, message: Tell) -> Reply:
        before = self.reports.get(message.id)
        self.reports[message.id] = message
        self._reported_s[message.id] = time.monotonic()
        lane = self.ledger.reservations[message.id]
        if self.real_time is not None:
            if message.above or message.used > lane.cores:
                self.real_time.take(lane)
            else:
                self.real_time.give(lane, self._reported_s[message.id])
        if message.above != (before is not None and before.above):
            self._weigh(lane, above=message.above)
        return Noted(known=True)

    def _weigh(self, lane: Reservation, *, above: bool) -> None:
        with contextlib.suppress(OSError):  # it may be gone by now
            self.grade.weigh(lane, above=above)

    def _free(self, name: str) -> None:
        if self.real_time is not None:
            self.real_time.end(name)
        self.ledger.free(name)
        self.reports.pop(name, None)
        self._reported_s.pop(name, None)
        self._released.add(name)  # at the next look: the kernel takes its time, for which whoever ends need not wait
        self._write_or_later()

    # -- the book -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        beside = self.home / f".{BOOK}.new"
        beside.touch(mode=0o600)
        beside.write_bytes(msgspec.json.encode(list(self.ledger.reservations.values())))
        beside.replace(self.home / BOOK)

    def _write_or_later(self) -> None:
        """Write the book, or at one of the next looks: one of before has only what is held still, or for who is gone."""
        try:
            self._write()
        except OSError as error:
            if not self._unwritten:
                log.warning("the ledger cannot be written, which is tried again: %s", error)
            self._unwritten = True
        else:
            self._unwritten = False

    def _read(self) -> list[Reservation]:
        try:
            return msgspec.json.decode((self.home / BOOK).read_bytes(), type=list[Reservation])
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as error:
            log.warning("the ledger of before cannot be read, and is begun anew: %s", error)
            return []


def gid_of(group: str) -> int:
    """Return a group's number."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise RateError(f"there is no group {group!r} on this machine; its promises would be for nobody") from None


def _groups_of(uid: int) -> list[int]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # a user without a name has no groups
        return []
    return os.getgrouplist(user.pw_name, user.pw_gid)


def _keeper(message: Ask, uid: int) -> Keeper | None:
    """Return who starts a lane again, as far as that process is of the same user: nobody else's life can hold cores."""
    began = process.began(message.keeper) if message.keeper else None
    if began is None or message.found is None or process.user(message.keeper) != uid:
        return None
    return Keeper(message.keeper, began, message.found)


def _refusal(refusal: Refusal) -> Refused:
    return Refused(refusal.required, refusal.left, list(refusal.holders), refusal.why, refusal.error)


def _own_grade() -> Grade:
    """Return the grade here, of a supervisor that a lane may have started, in whose group it is born and is not to be."""
    groups = cgroups.find()
    if groups is not None:
        with contextlib.suppress(OSError):  # such as where groups of version 2 have processes, or others
            groups.leave(os.getpid())
    return grade_here()


async def serve(
    home: Path,
    *,
    grade: Grade | None = None,
    idle_s: float | None = None,
    cores: float | None = None,
    is_open: bool = False,
    group: str | None = None,
) -> None:
    """Answer until told to stop, or until nothing has been promised for `idle_s`; one at a time for each folder.

    If it is open everybody may look, and a group's members may ask for promises too.
    """
    home.mkdir(mode=0o755 if is_open else 0o700, parents=True, exist_ok=True)
    with exclusive(home / LOCK, f"a supervisor runs already in {home}"):
        machine_grade = grade or _own_grade()
        if machine_grade.real_time:
            go_before_lanes()
        supervisor = Supervisor(home, machine_grade, cores, group)
        (home / SOCKET).unlink(missing_ok=True)
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _converse(supervisor, reader, writer)

        if is_open:
            home.chmod(0o755)
        before = os.umask(0o111 if is_open else 0o177)
        try:
            server = await asyncio.start_unix_server(converse, home / SOCKET, limit=_LONGEST_LINE)
        finally:
            os.umask(before)
        try:
            async with server:
                await _until_stopped(supervisor, stopping, idle_s)
        finally:
            (home / SOCKET).unlink(missing_ok=True)
            supervisor.look()
            supervisor.grade.sweep()


async def _until_stopped(supervisor: Supervisor, stopping: asyncio.Event, idle_s: float | None) -> None:
    clock, real_time = asyncio.get_running_loop().time, supervisor.real_time
    idle_since_s = looked_s = clock()
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), LOOK_S if real_time else _LOOK_S)
        now_s = clock()
        if real_time:
            for wild in real_time.look(time.monotonic()):
                log.info("flow %s uses more than it has reserved, and has no real time meanwhile", wild.flow)
        if now_s - looked_s < _LOOK_S:
            continue
        looked_s = now_s
        supervisor.look()
        if supervisor.ledger.reservations:
            idle_since_s = now_s
        if idle_s is not None and now_s - idle_since_s >= idle_s:
            return


async def _converse(supervisor: Supervisor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        pid, uid = peer(writer.get_extra_info("socket"))
        while text := await reader.readline():
            writer.write(line(supervisor.answer(request(text), pid, uid)))
            await writer.drain()
    except (msgspec.DecodeError, ValueError, FlowError) as error:
        log.warning("process %s says what is no message: %s", pid, error)
    except OSError as error:
        log.debug("a process is gone: %s", error)
    finally:
        writer.close()


def main() -> None:
    """Run a supervisor in the runtime folder; the first argument is after how many idle seconds it goes home."""
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(serve(folder(), idle_s=float(sys.argv[1]) if len(sys.argv) > 1 else None))
    except RateError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
