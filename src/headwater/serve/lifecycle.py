"""When a flow is started, stopped, and started again: events in, commands out. No process, file or clock in here.

A flow whose file has changed is checked first, while the old one runs; only what fits the state that was kept takes over.
Should it not start after all, the old one is started again, as it was.
What died is started again after a while, twice as long each time; what was refused, when its file changes or after the
longest while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FIRST_S, LONGEST_S = 1.0, 60.0  #: how long something that died rests, the first time and at most
STEADY_S = 60.0  #: what has run for so long starts again as if it had not died before
ABORT_S = 8.0  #: how long one that was told to give up may take to go before it is killed

SLOW_S = 5.0  #: a file that takes longer to import is told, and again each time it has taken twice as long

Phase = Literal["stopped", "starting", "running", "stopping", "waiting", "refused", "ended", "removed"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The file is there, with this in it."""

    print: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The file is there no longer."""


@dataclass(frozen=True, slots=True)
class Want:
    """Somebody wants it to run, or not to."""

    running: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """Somebody wants it to stop and to start again."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A changed file was looked at: None where it could take over, else why not."""

    print: str
    why: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """The process has begun to import the flow's file, or is through with it."""

    over: bool


@dataclass(frozen=True, slots=True)
class Began:
    """The process runs its flow now."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone: its flow came to its `end`, was `stopped`, was `refused` before it began, or it `died`."""

    how: Literal["end", "stopped", "refused", "died"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Shut:
    """The server ends; at once, or in good order."""

    now: bool = False


Event = Seen | Gone | Want | Restart | Checked | Imported | Began | Ended | Tick | Shut
Command = Literal["start", "check", "stop", "abort", "kill"]


@dataclass(slots=True)
class Lifecycle:
    """One flow's; it tells `why` it is what it is, where there is something to tell."""

    wanted: bool = True
    file: str = "its file"
    stop_within_s: float = 30.0
    import_within_s: float = 120.0
    phase: Phase = "stopped"
    why: str = ""
    since_s: float = 0.0
    restarts: int = 0  #: how often it was started again because it had died
    next_s: float | None = None  #: when it will be started again
    change: str | None = None  #: why a changed file has not taken over; the old one runs
    print: str = ""  #: of the file that runs, or would
    began: str = ""  #: of the file that was the last to begin to run: what a changed one has to live up to
    _newest: str = ""
    _failures: int = 0
    _again: bool = False  #: start when it has stopped
    _shut: bool = False
    _gone: bool = False
    _importing_s: float | None = None  #: since when, while it does
    _slow_s: float = SLOW_S
    _escalate: list[tuple[float, Command]] = field(default_factory=list)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Take note of something, and return what is to be done about it."""
        match event:
            case Seen(print):
                return self._on_seen(print, now_s)
            case Gone():
                self._gone = True
                return self._leave("removed", now_s)
            case Want(running):
                self.wanted = running
                return self._start(now_s, newest=True) if running else self._leave("stopped", now_s)
            case Restart():
                self.wanted, self.change = True, None  # what it imports may have changed too
                return self._restart(now_s) if self._has_process else self._start(now_s)
            case Checked(print, why):
                return self._on_checked(print, why, now_s)
            case Imported(over):
                if self.phase == "starting":
                    self._importing_s, self._slow_s, self.why = None if over else now_s, SLOW_S, ""
                return []
            case Began():
                if self.phase == "starting":
                    self.began = self.print
                    self._enter("running", now_s)
                return []
            case Ended(how, why):
                return self._on_ended(how, why, now_s)
            case Tick():
                return self._on_tick(now_s)
            case Shut(at_once):
                return self._on_shut(at_once, now_s)

    @property
    def _has_process(self) -> bool:
        return self.phase in ("starting", "running", "stopping")

    def _enter(self, phase: Phase, now_s: float, why: str = "") -> None:
        self.phase, self.since_s, self.why = phase, now_s, why
        self.next_s = self._importing_s = None
        self._escalate = []

    def _on_seen(self, print: str, now_s: float) -> list[Command]:
        back = self._gone
        self._gone = False
        if print == self._newest and not back:
            return []
        self._newest = print
        self._failures = 0
        if self.phase in ("starting", "running"):
            if print == self.print:  # as it was, after a change that was refused
                self.change = None
                return []
            return ["check"]
        self.print, self.change = print, None
        if self.phase == "stopping":
            self._again = self._again or self.wanted
            return []
        return self._start(now_s) if self.wanted else []

    def _on_checked(self, print: str, why: str | None, now_s: float) -> list[Command]:
        if print != self._newest or self.phase not in ("starting", "running"):
            return []
        self.change = why
        if why is not None:
            return []
        self.print = print
        return self._restart(now_s)

    def _start(self, now_s: float, *, newest: bool = False) -> list[Command]:
        """Start the newest that is there; what has begun before, where a change was refused."""
        if self._shut or self._gone or self.phase in ("starting", "running"):
            return []
        if self.phase == "stopping":
            self._again = True
            return []
        if newest or self.change is None or not self.began:
            self.print, self.change = self._newest, None
        else:
            self.print = self.began
        self._enter("starting", now_s)
        return ["start"]

    def _restart(self, now_s: float) -> list[Command]:
        """Stop, and start again then."""
        commands = self._leave("stopped", now_s)
        self._again = True
        return commands

    def _leave(self, phase: Phase, now_s: float) -> list[Command]:
        """Stop what runs; be in `phase` where nothing does."""
        self._again = False
        if self.phase == "stopping":
            return []
        if not self._has_process:
            self._enter(phase, now_s)
            return []
        self._enter("stopping", now_s)
        until_s = now_s + self.stop_within_s
        self._escalate = [(until_s, "abort"), (until_s + ABORT_S, "kill")]
        return ["stop"]

    def _on_shut(self, at_once: bool, now_s: float) -> list[Command]:
        self._shut = True
        commands = self._leave("stopped", now_s)
        if at_once and self._has_process:
            self._escalate = [(now_s + ABORT_S, "kill")]
            return ["abort"]
        return commands

    def _on_tick(self, now_s: float) -> list[Command]:
        if self._importing_s is not None:
            return self._check_import(now_s - self._importing_s)
        if self._escalate and now_s >= self._escalate[0][0]:
            return [self._escalate.pop(0)[1]]
        if self.next_s is not None and now_s >= self.next_s and self.wanted:
            return self._start(now_s)
        return []

    def _check_import(self, duration_s: float) -> list[Command]:
        """Tell of an import that takes long, and end one that does not end."""
        if duration_s >= self.import_within_s:
            self._importing_s = None
            self.why = f"did not start within {self.import_within_s:g} s: importing {self.file} does not end"
            return ["kill"]
        if duration_s >= self._slow_s:
            self.why = f"has not started for {self._slow_s:g} s: importing {self.file}"
            self._slow_s *= 2
        return []

    def _on_ended(self, how: str, why: str, now_s: float) -> list[Command]:
        ran_s = now_s - self.since_s if self.phase == "running" else 0.0
        if self.phase == "starting" and how == "died" and self.why and self._importing_s is None:
            why = self.why  # it was killed for that
        if self._gone:
            self._enter("removed", now_s, why)
            return []
        if self.phase == "stopping":
            again, self._again = self._again, False
            self._enter("stopped", now_s, why if how in ("died", "refused") else "")
            return self._start(now_s) if again and self.wanted else []
        if self.phase == "starting" and how in ("refused", "died") and self.wanted and not self._shut:
            if self.began and self.print != self.began:  # a change that seemed right, and does not start
                self.change, self.print = why or "it does not start", self.began
                self._enter("starting", now_s)
                return ["start"]
            self.change = None  # neither starts, so that it may be no fault of the change
        if how == "end":
            self._enter("ended", now_s)
        elif how == "refused":
            self._enter("refused", now_s, why)
            self.next_s = now_s + LONGEST_S
        else:  # died, or stopped by somebody who is not us
            self._failures = 0 if ran_s >= STEADY_S else self._failures
            self._enter("waiting", now_s, why)
            self.next_s = now_s + min(LONGEST_S, FIRST_S * 2**self._failures)
            self._failures += 1
            self.restarts += 1
        return []
