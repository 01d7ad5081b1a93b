"""Whether a GPU reaches the peaks that others of its kind reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.fleet import LEAST_CHANGE, BoxRates
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
_CLOSE = 0.9
"""Of what is typical of the boxes of public reports: these differ in more than the GPU, so what is below this
is not called normal, however much they spread."""
HALF = 0.5
"""Of the lowest public figure: a few figures do not tell how GPUs of one model spread, but what is below half
of even a single one has a reason."""
_OTHER_REASONS = "a narrow or slow PCIe link, another process, or a busy host"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was measured elsewhere, in units per second, and the limits of what is plausible."""

    measured_low: float
    measured_high: float | None
    """None if the source only gives a minimum."""
    warn_below: float
    """The lowest rate of a healthy box: `lowest_normal_rate` of the boxes, or HALF of a few figures."""
    suspicious_above: float
    figures: int = 1
    """How many public figures there are, where they are too few to judge by."""
    is_unsure: bool = False
    """Of low confidence: never a reason for BELOW NORMAL."""
    rates: BoxRates | None = None
    """Of boxes that are enough to judge by."""
    is_public: bool = False
    """Whether these boxes are those of public reports, and not of a reference."""

    @property
    def is_of_reference(self) -> bool:
        """Whether its boxes were measured with gputui."""
        return self.rates is not None and not self.is_public


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
    """The 95 % interval of `units_per_s`; asked for only beside boxes."""

    @property
    def word(self) -> str:
        """`NORMAL`, `BELOW NORMAL`, `ABOVE THE LIMIT`, `CAN'T TELL`, `NO VERDICT` or `NO REFERENCE`.

        Only boxes decide what is normal, and only of a whole interval, to a change that nobody would mind.
        """
        expectation = self.expectation
        if expectation is None:
            return NO_REFERENCE
        if self.units_per_s > expectation.suspicious_above:
            return ABOVE_LIMIT
        is_slow = self.units_per_s < expectation.warn_below
        if expectation.rates is not None:
            if is_slow and self.high_per_s < expectation.rates.typical_per_s:
                return BELOW_NORMAL
            is_open = self.low_per_s * math.exp(LEAST_CHANGE) < expectation.warn_below
            return CANNOT_TELL if is_open or self.is_far_from_typical else NORMAL
        if expectation.is_unsure:
            return NO_REFERENCE
        return BELOW_NORMAL if is_slow else NO_VERDICT

    @property
    def is_far_from_typical(self) -> bool:
        """Whether it is so much slower than public reports that no more launches make it normal."""
        expectation = self.expectation
        if expectation is None or expectation.rates is None or not expectation.is_public:
            return False
        return self.units_per_s < _CLOSE * expectation.rates.typical_per_s

    @property
    def share(self) -> float | None:
        """Of the lowest value measured elsewhere: 1 or more is as fast as there. None without a reference."""
        return None if self.expectation is None else self.units_per_s / self.expectation.measured_low

    @property
    def is_of_reference(self) -> bool:
        """Whether the boxes of a reference judge it, and no public figures."""
        return self.expectation is not None and self.expectation.is_of_reference

    @property
    def phrase(self) -> str:
        """`matmul amp 327 TFLOP/s, 66 % of the one public figure, 496`."""
        expectation, share = self.expectation, self.share
        if expectation is None or share is None:
            raise ValueError("a peak test without a reference has no phrase")
        rate = format_rate(self.units_per_s, self.unit)
        if self.word == ABOVE_LIMIT:
            limit = format_rate(expectation.suspicious_above, self.unit)
            return (
                f"{self.label} {rate} is above the physical limit of {limit}: a measurement error, "
                "or the device is not what its name says"
            )
        elsewhere = _elsewhere(expectation, self.unit, rate)
        if expectation.rates is not None:
            phrase = f"{self.label} {rate} ({counted(expectation.rates.boxes, 'box')}: {elsewhere})"
            if round(share, 2) < 1:
                phrase = f"{phrase}, {format_percent(share)} of the slowest that is usual"
        else:
            few = expectation.figures
            of = f"the lowest of {few} public figures" if few > 1 else "the one public figure"
            phrase = f"{self.label} {rate}, {format_percent(share)} of {of}, {elsewhere}"
        if self.word == BELOW_NORMAL:
            is_single = expectation.rates is None and expectation.figures == 1
            other = ", or the card of that one report was a better one" if is_single else ""
            return f"{phrase}: likely {_REASONS.get(self.measure, _OTHER_REASONS)}{other}"
        return phrase


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a device stands among the boxes of a reference."""

    reference: str
    model: str
    """Of its boxes, counted: `18 H100 SXM`."""
    boxes: int
    months: str
    cases: int
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

    The worst word wins: an impossible value, a low one, most measured too roughly. Where no test has boxes to
    be judged by there is no verdict; tests without a reference are not in the line unless all are without.
    """
    known = [one for one in peak_tests if one.word != NO_REFERENCE]
    decided = [one for one in known if one.word != NO_VERDICT]
    word = NORMAL if decided else NO_VERDICT
    text = f"{word}: {', '.join(_phrases(known))}"
    if not known:
        figures = ", ".join(f"{one.label} {format_rate(one.units_per_s, one.unit)}" for one in peak_tests)
        name = device_name or "a device without a name"
        text = f"no published figures for {name}: {figures or 'no peak test was measured'}"
        word = NO_REFERENCE
    for worse in (CANNOT_TELL, BELOW_NORMAL, ABOVE_LIMIT):
        hits = [one for one in decided if one.word == worse]
        if len(hits) > (len(decided) / 2 if worse == CANNOT_TELL else 0):
            rest = [one for one in known if one.word != worse]
            word, text = worse, f"{worse}: {'; '.join([*(one.phrase for one in hits), *_phrases(rest)])}"
    if standing is not None:
        text = f"{text}. {standing.text}"
    return PerformanceCheck(word, text, tuple(peak_tests), device_name, device_index, standing)


def _phrases(judged: Sequence[PeakTest]) -> Iterator[str]:
    """One for each test; those that are as in a reference, which may be many, are counted."""
    as_boxes = [one for one in judged if one.word == NORMAL and one.is_of_reference]
    if as_boxes:
        most = max(
            one.expectation.rates.boxes for one in as_boxes if one.expectation and one.expectation.rates
        )
        yield f"{counted(len(as_boxes), 'case')} as on {counted(most, 'box')} of its model"
    yield from (one.phrase for one in judged if one.word != NORMAL or not one.is_of_reference)


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
