"""Formats numbers as text, and reads typed ones. Nothing else does: two formats would print one speed as two
numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gputui.errors import GputuiError

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Rate:
    """How throughput in one unit of work is shown."""

    singular: str
    """As in `1.9k img/s`."""
    scaled: bool
    """True: the prefix belongs to the unit (`1.9 TFLOP/s`); False: to the number (`1.9k img/s`)."""
    noun: str
    """One of it, in a sentence: `22 % cheaper per token`."""


class Rates(dict[str, Rate]):
    """The known units; an unknown unit, of a newer gputui, is shown by its name."""

    def __missing__(self, unit: str) -> Rate:
        return Rate(f"{unit}/s", False, unit)


RATES = Rates(
    {
        "flop": Rate("FLOP/s", True, "TFLOP"),
        "B": Rate("B/s", True, "GB"),
        "img": Rate("img/s", False, "image"),
        "tok": Rate("tok/s", False, "token"),
        "seq": Rate("seq/s", False, "sequence"),
        "frame": Rate("fps", False, "frame"),
        "req": Rate("req/s", False, "request"),
        "step": Rate("step/s", False, "step"),
        "run": Rate("run/s", False, "run"),
    }
)

TIME_UNIT = "s"
"""Of a case that is a time: it has one per step, so its rate is 1 over the time."""

PRICE_SCALE: dict[str, float] = {"flop": 1e12, "B": 1e9, "run": 1e-6}
"""A million of these is priced in multiples: one FLOP or byte costs too little to print, and nobody runs a
program a million times."""

_FACTOR_FROM = 1.5
"""From here on a change is said as a factor, below it in percent."""
_MOST_PRINTED = 10
"""Upper ends of intervals beyond so many times are not printed."""
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_JOULES = ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_ROUNDS_UP = 0.9994999
"""From this part of a unit on, three digits round up to a whole one; a hair below the true 0.9995, which
binary fractions cannot represent."""
_BINARY_ROUNDS_UP = 1023.5 / 1024


def three_digits(value: float) -> str:
    """A number below 1000 with three significant digits: `9.93`, `41.2`, `512`."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def prefix_of(value: float, beside: float = 0.0) -> tuple[float, str]:
    """The SI prefix of a number, and its factor; that of one `beside` which is up to 100 times as large."""
    largest = beside if abs(value) < beside <= 100 * abs(value) else abs(value)
    return next((one for one in _PREFIXES if largest >= one[0] * _ROUNDS_UP), _PREFIXES[-1])


def with_prefix(value: float) -> tuple[str, str]:
    """Three significant digits and the SI prefix for them; below 1 no more digits than there are."""
    factor, prefix = prefix_of(value)
    return three_digits(value / factor) if abs(value) >= _ROUNDS_UP else f"{value:.3g}", prefix


UNKNOWN = "unknown"
"""What stands in place of an interval over two decades."""


def format_spread(value: float, low: float, high: float) -> str:
    """An interval around a value: `±2 %`, or `-18 to +22 %` if lopsided; `unknown` beyond two decades."""
    if high > _MOST_PRINTED * value > _MOST_PRINTED**2 * low:
        return UNKNOWN
    below, above = _signed_percent(low / value), _signed_percent(high / value)
    if below.lstrip("-") == above.lstrip("+"):
        return f"±{above.lstrip('+')} %"
    return f"{below} to {above if high < _MOST_PRINTED * value else '>+900'} %"


def format_change(ratio: float) -> str:
    """How much faster or slower, as a change of the rate: `-36 %`, `+0.4 %`, `1.56x`."""
    return format_ratio(ratio) if ratio >= _FACTOR_FROM else f"{_signed_percent(ratio)} %"


def format_change_interval(low: float, high: float, ratio: float) -> str:
    """The ends of a change, in the form that `format_change` chose for the ratio: `-38 to -34`, `39.8 to
    42.1`; UNKNOWN over two decades around no change."""
    if low < 1 < high and high > _MOST_PRINTED**2 * low:
        return UNKNOWN
    if ratio >= _FACTOR_FROM:
        return f"{format_ratio(low).removesuffix('x')} to {format_ratio(high).removesuffix('x')}"
    return f"{_signed_percent(low)} to {_signed_percent(high) if high < _MOST_PRINTED else '>+900'}"


def format_size_of_change(ratio: float, low: float, high: float) -> tuple[str, str]:
    """A change whose direction a word tells, and its ends, the smaller one first: (`36 %`, `34 to 38`)."""
    if ratio >= _FACTOR_FROM:
        return format_ratio(ratio), format_change_interval(low, high, ratio)
    ends = [_signed_percent(end).lstrip("+-") for end in (low, high)]
    if ends[0] == ends[1]:
        ends = [f"{abs(100 * (end - 1)):.1f}" for end in (low, high)]
    return f"{_signed_percent(ratio).lstrip('+-')} %", " to ".join(ends if ratio >= 1 else ends[::-1])


def _signed_percent(ratio: float) -> str:
    """With enough decimals to distinguish a change from none, and a near-zero rate from zero."""
    percent = max(100 * (ratio - 1), -99.99)
    if abs(percent) < 0.05:
        return "0"
    decimals = min(2, int(-math.log10(ratio))) if ratio < 0.1 else 1 if abs(percent) < 0.95 else 0
    return f"{percent:+.{decimals}f}"


def format_rate(units_per_s: float, unit: str, beside: float = 0.0) -> str:
    """Throughput: `1.93 TFLOP/s`, `41.2 GB/s`, `1.93k img/s`; of a time that time, `231 ms`.

    `beside`: as in `prefix_of`.
    """
    if unit == TIME_UNIT:
        return format_seconds(1 / units_per_s)
    rate = RATES[unit]
    factor, prefix = prefix_of(units_per_s, beside if rate.scaled else 0.0)
    number = units_per_s / factor
    digits = three_digits(number) if number >= _ROUNDS_UP else f"{number:{'#' if prefix else ''}.3g}"
    return f"{digits} {prefix}{rate.singular}" if rate.scaled else f"{digits}{prefix} {rate.singular}"


def format_seconds(seconds: float) -> str:
    """A duration: `312 ns`, `4.10 ms`, `12.0 s`, `3 min 20 s`, `5 min`, `2 h 5 min`; zero is `0 s`."""
    if seconds == 0:
        return "0 s"
    if round(seconds) >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if seconds >= 99.95:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return _in_largest(seconds, _SECONDS, _ROUNDS_UP)


def _in_largest(value: float, scales: Sequence[tuple[float, str]], rounds_up: float) -> str:
    """In the largest of these units of which there is one, or else in the smallest."""
    scale, unit = next((one for one in scales if value >= one[0] * rounds_up), scales[-1])
    return f"{three_digits(value / scale)} {unit}"


def format_clock(seconds: float, of_s: float = 0.0) -> str:
    """Time on a clock: `0:07`, `1:02:03`; with hours if `of_s` has them."""
    whole = max(math.floor(seconds), 0)
    minutes, rest = divmod(whole, 60)
    if max(whole, of_s) < 3600:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def format_whole_seconds(seconds: float) -> str:
    """A duration that was chosen or estimated, rounded up: `40 s`, `90 s`, `2 min 20 s`, `5 min`."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 100 else format_seconds(whole)


def format_minutes(seconds: float) -> str:
    """A duration in minutes, rounded up: `1 min`, `2 h 5 min`."""
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes} min" if minutes < 60 else format_seconds(60 * minutes)


def axis_of_seconds(low: float, high: float) -> tuple[float, float, str, str]:
    """The ends of an axis that holds these durations, rounded outwards so that they seldom change, and their
    texts of at most four digits: `(0.075, 0.078, "75 ms", "78 ms")`.
    """
    high = max(high, low * (1 + 1e-6), 1e-12)
    rough = (high - low) / 3
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= rough)
    step = max(step, 10.0 ** (math.floor(math.log10(high)) - 3))
    first, last = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    scale, unit = next((one for one in _SECONDS if last >= one[0]), _SECONDS[-1])
    decimals = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    return first, last, f"{first / scale:.{decimals}f} {unit}", f"{last / scale:.{decimals}f} {unit}"


def format_bytes(count: float) -> str:
    """Memory in binary units: `141 GiB`."""
    if count < _BYTES[-1][0] * _BINARY_ROUNDS_UP:
        return f"{count:.0f} B"
    return _in_largest(count, _BYTES, _BINARY_ROUNDS_UP)


def format_percent(fraction: float) -> str:
    """A share: `61 %`; below 1 %: `0.4 %`; too small to show: `<0.1 %`."""
    percent = fraction * 100
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.0f} %" if abs(percent) >= 0.95 or percent == 0 else f"{percent:.1f} %"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 case`, `3 launches`."""
    plural = "es" if noun.endswith(("h", "s", "x")) else "s"
    return f"{number} {noun}{plural if number != 1 else ''}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def format_ratio(ratio: float) -> str:
    """A factor: `1.03x`, `10.8x`, `0.52x`."""
    return f"{three_digits(ratio)}x" if 0.00995 <= ratio < 1e6 else f"{ratio:.1g}x"


def format_usd(usd: float) -> str:
    """An amount of money: `$4.59`, `$0.50`, `$0.0031`, `$0.000012`."""
    if usd == 0 or usd >= 0.0995:
        return f"${usd:.2f}"
    decimals = int(f"{usd:.1e}".partition("e")[2])  # after rounding, so that 0.00999 is 0.010
    return f"${usd:.{1 - decimals}f}"


def cost_unit(usd_per_million: float, unit: str) -> tuple[float, str]:
    """How many millions of it cost from cents to dollars, and what so many are called: `Gtok`, `1M img`.

    A million counts as in PRICE_SCALE.
    """
    if unit == "run":
        return 1.0, "run"
    million = 1e6 * PRICE_SCALE.get(unit, 1.0)
    usd = usd_per_million / million
    scale, prefix = next(
        ((s, p) for s, p in reversed(_PREFIXES) if usd * s >= 0.0995),
        (_PREFIXES[0] if usd else _PREFIXES[-2]),
    )
    rate = RATES[unit]
    name = rate.singular.removesuffix("/s") if unit in RATES else unit
    is_joined = rate.scaled or unit == "tok"
    return scale / million, f"{prefix}{name}" if is_joined else f"{f'1{prefix}'} {name}"


def format_hourly(usd: float) -> str:
    """A price per hour, with all the digits it was stated with: `$0.40/h`, `$3.59/h`, `$0.0042/h`."""
    plain = f"{usd:g}"
    return f"${usd:.2f}/h" if "e" not in plain and len(plain.partition(".")[2]) < 2 else f"${plain}/h"


def format_metric(value: float, unit: str) -> str:
    """A metric in its unit: `12.3 ms`, `4.10 GiB`, `61 %`, `0.98x`, `0`; in an unknown unit as `12.3 W`."""
    if unit == "s":
        return format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "share":
        return format_percent(value)
    if unit == "ratio":
        return format_ratio(value)
    if unit in ("B/s", "1/s"):
        digits, prefix = with_prefix(value)
        return f"{digits} {prefix}B/s" if unit == "B/s" else f"{digits}{prefix}/s"
    number = f"{value:.0f}" if value == round(value) else three_digits(value)
    return number if unit == "count" else f"{number} {unit}"


def format_energy(joules_per_unit: float, unit: str) -> str:
    """Energy for a unit of work: `1.37 J/img`, `12.0 mJ/tok`, `0.92 pJ/flop`."""
    if joules_per_unit < 1e-12 * _ROUNDS_UP:
        return f"{joules_per_unit / 1e-12:.2g} pJ/{unit}"
    return f"{_in_largest(joules_per_unit, _JOULES, _ROUNDS_UP)}/{unit}"


def number_from(
    option: str, kind: type[N], hint: str, within: tuple[float, float] | None = None
) -> Callable[[str], N]:
    """What parses a number of this kind in this range, and raises GputuiError with the hint for another."""

    def read(text: str) -> N:
        whole = " whole" if kind is int else ""
        try:
            number = kind(text)
        except ValueError:
            raise GputuiError(f"{option}: {text[:40]!r} is not a{whole} number", hint) from None
        if within is not None and not within[0] <= number <= within[1]:
            allowed = f"{within[0]:.15g} to {within[1]:.15g}"
            raise GputuiError(f"{option}: {text[:40].strip()} is not in the range {allowed}", hint)
        return number

    return read
