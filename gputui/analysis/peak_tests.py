"""Whether a GPU reaches the peaks that others of its kind reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.model.units import format_percent, format_rate

NORMAL = "NORMAL"
BELOW_NORMAL = "BELOW NORMAL"
ABOVE_LIMIT = "ABOVE THE LIMIT"
NO_REFERENCE = "NO REFERENCE"

_REASONS = {
    "matmul": "a power cap, heat, another process on the GPU, or a slice of it",
    "copy": "another process on the GPU, a lowered memory clock, or a slice of it",
}
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


@dataclass(frozen=True, slots=True)
class PeakTest:
    """One peak measured here, with what is expected of the device."""

    label: str
    """Name of the row, such as `gemm amp`."""
    measure: str
    """`matmul`, `copy`, `h2d_pinned`, ..."""
    units_per_s: float
    unit: str
    """`flop` or `B`, as in `units.RATES`."""
    expectation: Expectation | None
    """None if nothing is known about this device."""
    is_small: bool = False
    """Too small to fill the device."""


@dataclass(frozen=True, slots=True)
class JudgedPeakTest:
    """One peak test compared with what is expected."""

    peak_test: PeakTest
    word: str
    share: float | None
    """Of the lowest value measured elsewhere: 1 or more is as fast as there. None without a reference."""


@dataclass(frozen=True, slots=True)
class PerformanceCheck:
    """Whether the machine performs as expected: one word, one line, and each peak test."""

    word: str
    """`NORMAL`, `BELOW NORMAL`, `ABOVE THE LIMIT` or `NO REFERENCE`."""
    text: str
    peak_tests: tuple[JudgedPeakTest, ...]
    device_name: str
    device_index: int | None
    """Of a GPU; None for a CPU."""

    @property
    def has_small_tests_only(self) -> bool:
        """Whether all tests were too small for the device, so that published figures say nothing of them."""
        return all(judged.peak_test.is_small for judged in self.peak_tests)


def check_performance(
    device_name: str, peak_tests: Sequence[PeakTest], device_index: int | None = None
) -> PerformanceCheck:
    """Compare the peak tests of one device with what its kind reaches elsewhere.

    The worst word wins: an impossible value before a low one, a low one before a normal one. Tests without a
    reference do not count, and are not in the line unless all are without.
    """
    judged = tuple(_judge(peak_test) for peak_test in peak_tests)
    known = [one for one in judged if one.word != NO_REFERENCE]
    word, text = NORMAL, f"{NORMAL}: {', '.join(_phrase(one) for one in known)}"
    if not known:
        word, text = NO_REFERENCE, _text_without_reference(device_name, peak_tests)
    for worse in (BELOW_NORMAL, ABOVE_LIMIT):
        hits = [one for one in known if one.word == worse]
        if hits:
            rest = [one for one in known if one.word != worse]
            word, text = worse, f"{worse}: {'; '.join(_phrase(one) for one in hits + rest)}"
    return PerformanceCheck(word, text, judged, device_name, device_index)


def _judge(peak_test: PeakTest) -> JudgedPeakTest:
    expectation = peak_test.expectation
    if expectation is None:
        return JudgedPeakTest(peak_test, NO_REFERENCE, None)
    if peak_test.units_per_s > expectation.suspicious_above:
        word = ABOVE_LIMIT
    elif expectation.is_unsure:
        word = NO_REFERENCE
    elif peak_test.units_per_s < expectation.warn_below:
        word = BELOW_NORMAL
    else:
        word = NORMAL
    return JudgedPeakTest(peak_test, word, peak_test.units_per_s / expectation.measured_low)


def _phrase(judged: JudgedPeakTest) -> str:
    peak_test, expectation = judged.peak_test, judged.peak_test.expectation
    if expectation is None or judged.share is None:
        raise ValueError("a peak test without a reference has no phrase")
    rate = format_rate(peak_test.units_per_s, peak_test.unit)
    if judged.word == ABOVE_LIMIT:
        limit = format_rate(expectation.suspicious_above, peak_test.unit)
        return (
            f"{peak_test.label} {rate} is above the physical limit of {limit}: an error of measurement, "
            "or this is another device than its name says"
        )
    is_single = expectation.is_one_report
    where = "one report:" if is_single else "elsewhere"
    phrase = f"{peak_test.label} {rate} ({where} {_elsewhere(expectation, peak_test.unit, rate)})"
    if round(judged.share, 2) < 1:
        least = "" if expectation.measured_high is not None else "at least "
        of = f"{least}that report" if is_single else f"what this GPU does {least}elsewhere"
        phrase = f"{phrase}, {format_percent(judged.share)} of {of}"
    if judged.word == BELOW_NORMAL:
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


def _text_without_reference(device_name: str, peak_tests: Sequence[PeakTest]) -> str:
    name = device_name or "a device without a name"
    figures = ", ".join(f"{c.label} {format_rate(c.units_per_s, c.unit)}" for c in peak_tests)
    return f"no published figures for {name}: {figures or 'no peak test was measured'}"
