"""What the Run screen asks of the outside: its model opens no file, starts nothing and waits for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.services.runs.start import Draft


@dataclass(frozen=True, slots=True)
class CheckDraft:
    """Find out what is wrong with a draft, and what would run."""

    draft: Draft
    editing: str
    """The field that letters go to; empty for none."""
    anew: bool = False
    """Forget what is known of the box and its interpreters."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start what a draft asks for, as `gputui run --detach` does."""

    draft: Draft
    anyway: bool = False
    """Whatever disturbs it: the user was asked."""


@dataclass(frozen=True, slots=True)
class AskHosts:
    """Ask other boxes what they are and what they would measure; starts nothing."""

    draft: Draft
    hosts: str


@dataclass(frozen=True, slots=True)
class StartHosts:
    """Start on the hosts that were asked last, and follow them."""


@dataclass(frozen=True, slots=True)
class FollowHosts:
    """Go on with a bakeoff that nobody brings home."""

    name: str


@dataclass(frozen=True, slots=True)
class StopHosts:
    """Have all hosts end their runs."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Follow a run in progress, and no other."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Unwatch:
    """Follow no run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the supervisor of a run to end it."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Put a text where it can be pasted from."""

    text: str


@dataclass(frozen=True, slots=True)
class OpenScreen:
    """Open another screen, with words as on the command line."""

    screen_id: str
    words: tuple[str, ...]


class Leave:
    """Leave the program."""


Request = (
    CheckDraft
    | Start
    | AskHosts
    | StartHosts
    | FollowHosts
    | StopHosts
    | Watch
    | Unwatch
    | Stop
    | Copy
    | OpenScreen
    | Leave
)
