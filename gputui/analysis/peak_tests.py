"""Whether a GPU reaches the peaks that others of its kind reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.box_rates import BoxRates
from gputui.analysis.fleet import LEAST_CHANGE
from gputui.model.units import counted, format_percent, format_rate

NORMAL = "NORMAL"
BELOW_NORMAL = "BELOW NORMAL"
ABOVE_LIMIT = "ABOVE THE LIMIT"
CANNOT_TELL = "CAN'T TELL"
NO_VERDICT = "NO VERDICT"
NO_REFERENCE = "NO REFERENCE"

_REASONS = {
    "matmul": "a power cap, heat, another process on the GPU, or a slice of it",
    "copy": "another process on the GPU, a lowered memory clock, or a slice of it",
}
_CLOSE, _HALF = 0.9, 0.5
"""Of the lowest figure published: how cards of one model spread is not known from a few of them. What is not
close is no proof of being slow; what is below half of even a single figure has a reason."""
_OTHER_REASONS = "a narrow or slow PCIe link, another process, or a busy host"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was measured elsewhere, in units per second, and the limits of what is plausible."""

    measured_low: float
    measured_high: float | None
    """None if the source only gives a minimum."""
    warn_below: float
    suspicious_above: float
    is_one_report: bool = False
    """One person measured one card: not the range of a kind, so less is claimed."""
    is_unsure: bool = False
    """Of low confidence: never a reason for BELOW NORMAL."""
    rates: BoxRates | None = None
    """Where it comes from boxes of a reference; `warn_below` is then their `lowest_normal_rate`."""


@dataclass(frozen=True, slots=True)
class PeakTest:
    """One peak measured here, with what is expected of the device."""

    label: str
    """Name of the row, such as `matmul amp`."""
    measure: str
    """`matmul`, `copy`, `h2d_pinned`, ..."""
    units_per_s: float
    unit: str
    """`flop` or `B`, as in `units.RATES`."""
    expectation: Expectation | None
    """None if nothing is known about this device."""
    is_small: bool = False
    """Too small to fill the device."""
    low_per_s: float = 0.0
    high_per_s: float = 0.0
    """The 95 % interval of `units_per_s`; asked for only beside a reference."""

    @property
    def word(self) -> str:
        """`NORMAL`, `BELOW NORMAL`, `ABOVE THE LIMIT`, `CAN'T TELL`, `NO VERDICT` or `NO REFERENCE`.

        Beside a reference it is normal only if its whole interval is, to a change that nobody would mind.
        """
        expectation = self.expectation
        if expectation is None:
            return NO_REFERENCE
        if self.units_per_s > expectation.suspicious_above:
            return ABOVE_LIMIT
        if expectation.rates is not None and self.low_per_s * math.exp(LEAST_CHANGE) < expectation.warn_below:
            is_slow = self.units_per_s < expectation.warn_below
            return (
                BELOW_NORMAL if is_slow and self.high_per_s < expectation.rates.typical_per_s else CANNOT_TELL
            )
        if expectation.is_unsure:
            return NO_REFERENCE
        if expectation.rates is not None:
            return NORMAL
        share = self.units_per_s / expectation.measured_low
        if share < _HALF if expectation.is_one_report else self.units_per_s < expectation.warn_below:
            return BELOW_NORMAL
        return NO_VERDICT if expectation.is_one_report or share < _CLOSE else NORMAL

    @property
    def share(self) -> float | None:
        """Of the lowest value measured elsewhere: 1 or more is as fast as there. None without a reference."""
        return None if self.expectation is None else self.units_per_s / self.expectation.measured_low

    @property
    def is_of_boxes(self) -> bool:
        """Whether a reference judges it, and no published range."""
        return self.expectation is not None and self.expectation.rates is not None

    @property
    def phrase(self) -> str:
        """`matmul amp 327 TFLOP/s (one report: 496), 66 % of that report`."""
        return _phrase(self)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a device stands among the boxes of a reference."""

    reference: str
    """The name of the reference."""
    model: str
    """Of its boxes, counted: `18 H100 SXM`."""
    boxes: int
    months: str
    cases: int
    """Cases that both have measured."""
    share_slower: float
    """Which share of the boxes is slower, the mean over the cases; 0 to 1."""
    ratio: float
    """The geometric mean over the cases of its rate over what is typical."""
    lowest: str
    """The case in which it stands lowest, its rate and the usual ones: `matmul 612 of 680–794 TFLOP/s`."""
    remarks: tuple[str, ...]
    """What else makes a difference, such as a power limit."""
    judges: bool
    """Whether there are boxes enough, of the same software, to call this one normal or below."""

    @property
    def source(self) -> str:
        """`reference of 2026-11, 12 cases`."""
        return f"reference of {self.months}, {counted(self.cases, 'case')}"

    @property
    def text(self) -> str:
        """`Faster than 31 % of 18 H100 (reference of 2026-11, 12 cases): matmul 612 of 680–794 TFLOP/s.`"""
        remarks = "".join(f", {remark}" for remark in self.remarks)
        if self.judges:
            share = format_percent(self.share_slower)
            return f"Faster than {share} of {self.model} ({self.source}): {self.lowest}{remarks}."
        return f"At {format_percent(self.ratio)} of the rates of {self.model} ({self.source}){remarks}."


@dataclass(frozen=True, slots=True)
class PerformanceCheck:
    """Whether the machine performs as expected: one word, one line, and each peak test."""

    word: str
    """`NORMAL`, `BELOW NORMAL`, `ABOVE THE LIMIT`, `CAN'T TELL`, `NO VERDICT` or `NO REFERENCE`."""
    text: str
    peak_tests: tuple[PeakTest, ...]
    device_name: str
    device_index: int | None
    """Of a GPU; None for a CPU."""
    standing: Standing | None = None
    """Where a reference of its model is known."""


def check_performance(
    device_name: str,
    peak_tests: Sequence[PeakTest],
    device_index: int | None = None,
    standing: Standing | None = None,
) -> PerformanceCheck:
    """Compare the tests of one device with what its kind reaches elsewhere.

    The worst word wins: an impossible value, a low one, most measured too roughly, none that decides. Tests
    without a reference do not count, and are not in the line unless all are without.
    """
    known = [one for one in peak_tests if one.word != NO_REFERENCE]
    word, text = NORMAL, f"{NORMAL}: {', '.join(_phrases(known))}"
    if not known:
        figures = ", ".join(f"{one.label} {format_rate(one.units_per_s, one.unit)}" for one in peak_tests)
        name = device_name or "a device without a name"
        text = f"no published figures for {name}: {figures or 'no peak test was measured'}"
        word = NO_REFERENCE
    for worse in (NO_VERDICT, CANNOT_TELL, BELOW_NORMAL, ABOVE_LIMIT):
        hits = [one for one in known if one.word == worse]
        if len(hits) > (len(known) / 2 if worse == CANNOT_TELL else 0):
            rest = [one for one in known if one.word != worse]
            word, text = worse, f"{worse}: {'; '.join([*map(_phrase, hits), *_phrases(rest)])}"
    if standing is not None:
        text = f"{text}. {standing.text}"
    return PerformanceCheck(word, text, tuple(peak_tests), device_name, device_index, standing)


def _phrases(judged: Sequence[PeakTest]) -> Iterator[str]:
    """One for each test; those that are as in a reference, which may be many, are counted."""
    as_boxes = [one.expectation for one in judged if one.word == NORMAL and one.is_of_boxes]
    if as_boxes:
        most = max(one.rates.boxes for one in as_boxes if one is not None and one.rates is not None)
        yield f"{counted(len(as_boxes), 'case')} as on {counted(most, 'box')} of its model"
    yield from (_phrase(one) for one in judged if one.word != NORMAL or not one.is_of_boxes)


def _phrase(peak_test: PeakTest) -> str:
    expectation, share = peak_test.expectation, peak_test.share
    if expectation is None or share is None:
        raise ValueError("a peak test without a reference has no phrase")
    rate = format_rate(peak_test.units_per_s, peak_test.unit)
    if peak_test.word == ABOVE_LIMIT:
        limit = format_rate(expectation.suspicious_above, peak_test.unit)
        return (
            f"{peak_test.label} {rate} is above the physical limit of {limit}: a measurement error, "
            "or the device is not what its name says"
        )
    is_single = expectation.is_one_report
    where = "one report:" if is_single else "elsewhere"
    if expectation.rates is not None:
        where = f"{counted(expectation.rates.boxes, 'box')}:"
    phrase = f"{peak_test.label} {rate} ({where} {_elsewhere(expectation, peak_test.unit, rate)})"
    if round(share, 2) < 1 and expectation.rates is not None:
        phrase = f"{phrase}, {format_percent(share)} of the slowest that is usual"
    elif round(share, 2) < 1:
        least = "" if expectation.measured_high is not None else "at least "
        of = f"{least}that report" if is_single else f"what this GPU does {least}elsewhere"
        phrase = f"{phrase}, {format_percent(share)} of {of}"
    if peak_test.word == BELOW_NORMAL:
        other = ", or the card of that one report was a better one" if is_single else ""
        return f"{phrase}: likely {_REASONS.get(peak_test.measure, _OTHER_REASONS)}{other}"
    return phrase


def _elsewhere(expectation: Expectation, unit: str, beside: str) -> str:
    """The expected range; its unit is left out if it equals that of the value it is compared with."""
    low = format_rate(expectation.measured_low, unit)
    if expectation.measured_high is None:
        return f"at least {_without_unit(low, beside)}"
    high = format_rate(expectation.measured_high, unit)
    if low == high:
        return _without_unit(low, beside)
    if low.split()[1:] != high.split()[1:]:
        return f"{low} to {high}"
    return f"{low.split()[0]}–{_without_unit(high, beside)}"


def _without_unit(rate: str, beside: str) -> str:
    return rate.split()[0] if rate.split()[1:] == beside.split()[1:] else rate
