"""Pasted text is text: no key in it is obeyed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser

from gputui.tui.terminal.driver import PasteFilter

BEGINS, ENDS = "\x1b[200~", "\x1b[201~"
ANY_TEXT = st.text(st.sampled_from("ab\x1b[2013~\x01\x07\t\n\r温"), max_size=40)


def events_of(*pieces: str) -> list[object]:
    """The events for the terminal's bytes, as they arrive."""
    pastes, parser = PasteFilter(), XTermParser()
    return [event for piece in pieces for event in parser.feed(pastes.feed(piece))]


def test_an_escape_sequence_in_a_paste_presses_no_key() -> None:
    found = events_of(f"{BEGINS}evil\x1b[31mred\x07\x01tab\there\x1b{ENDS}r")
    paste, key = found
    assert isinstance(paste, events.Paste)
    assert paste.text == "evil[31mredtab\there"
    assert isinstance(key, events.Key)
    assert key.key == "r"


@given(st.lists(st.tuples(st.booleans(), ANY_TEXT), max_size=5), st.data())
def test_however_the_bytes_arrive_it_is_the_same(parts: list[tuple[bool, str]], data: st.DataObject) -> None:
    pasted = [(is_paste, text.replace(ENDS, "").replace(BEGINS, "")) for is_paste, text in parts]
    whole = "".join(f"{BEGINS}{text}{ENDS}" if is_paste else text for is_paste, text in pasted)
    at_once = PasteFilter().feed(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pastes = PasteFilter()
    edges = [0, *cuts, len(whole)]
    in_pieces = "".join(pastes.feed(whole[a:b]) for a, b in pairwise(edges))
    assert in_pieces == at_once


@given(ANY_TEXT)
def test_what_is_typed_passes_as_it_is(text: str) -> None:
    typed = text.replace(BEGINS, "")
    assert PasteFilter().feed(typed) == typed
