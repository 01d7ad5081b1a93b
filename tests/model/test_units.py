"""Numbers become text once, with as many digits as they deserve and the right prefix at every edge."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.model.units import (
    RATES,
    axis_of_seconds,
    format_bytes,
    format_change,
    format_change_interval,
    format_hourly,
    format_minutes,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
    format_spread,
    format_usd,
    format_whole_seconds,
    three_digits,
    with_prefix,
)

SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def seconds_shown(text: str) -> float:
    return sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))


def bytes_shown(text: str) -> float:
    number, unit = text.split(" ")
    return float(number) * BYTES[unit]


def significant_digits(number: str) -> int:
    return len(number.replace(".", "").lstrip("0"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, ("0", "")),
        (0.5, ("0.5", "")),
        (9.994, ("9.99", "")),
        (9.996, ("10.0", "")),
        (99.94, ("99.9", "")),
        (99.96, ("100", "")),
        (999.4, ("999", "")),
        (999.6, ("1.00", "k")),
        (999_499, ("999", "k")),
        (999_600, ("1.00", "M")),
        (1.93e12, ("1.93", "T")),
        (9.99e17, ("999", "P")),
        (1e18, ("1.00", "E")),
        (-512.3, ("-512", "")),
        (-1234.0, ("-1.23", "k")),
    ],
)
def test_a_number_takes_the_next_prefix_exactly_when_its_digits_would_become_four(
    value: float, shown: tuple[str, str]
) -> None:
    assert with_prefix(value) == shown


@given(st.floats(1.0, 9.99e20))
def test_a_prefixed_number_has_three_digits_and_is_the_number(value: float) -> None:
    digits, prefix = with_prefix(value)
    assert significant_digits(digits) == 3
    assert float(digits) * SCALES[prefix] == pytest.approx(value, rel=0.00501)


@given(st.floats(1e-3, 999.4), st.floats(1e-3, 999.4))
def test_of_two_numbers_the_greater_is_never_shown_as_the_less(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert float(three_digits(low)) <= float(three_digits(high))


@pytest.mark.parametrize(
    ("units_per_s", "unit", "shown"),
    [
        (1.93e12, "flop", "1.93 TFLOP/s"),
        (41.2e9, "B", "41.2 GB/s"),
        (1930, "img", "1.93k img/s"),
        (412, "tok", "412 tok/s"),
        (0, "req", "0 req/s"),
    ],
)
def test_a_prefix_belongs_to_a_unit_that_takes_one_and_else_to_the_number(
    units_per_s: float, unit: str, shown: str
) -> None:
    assert format_rate(units_per_s, unit) == shown


@given(st.floats(1e-6, 1e20), st.sampled_from(sorted(RATES)))
def test_a_rate_is_never_shown_with_an_exponent_above_a_ten_thousandth(rate: float, unit: str) -> None:
    assert ("e-" in format_rate(rate, unit)) == (rate < 9.9995e-5)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (312e-9, "312 ns"),
        (999.6e-9, "1.00 µs"),
        (9.995e-4, "1.00 ms"),
        (4.1e-3, "4.10 ms"),
        (0.9996, "1.00 s"),
        (12, "12.0 s"),
        (99.94, "99.9 s"),
        (99.96, "1 min 40 s"),
        (119.6, "2 min"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (3600, "1 h"),
        (7199, "2 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_duration_is_shown_in_the_units_people_use(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.3, "1 s"), (39.97, "40 s"), (90, "90 s"), (99.2, "1 min 40 s"), (140, "2 min 20 s"), (300, "5 min")],
)
def test_a_chosen_duration_has_no_fraction(seconds: float, shown: str) -> None:
    assert format_whole_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(3, "1 min"), (61, "2 min"), (3600, "1 h"), (7500, "2 h 5 min")]
)
def test_an_estimate_is_in_minutes_rounded_up(seconds: float, shown: str) -> None:
    assert format_minutes(seconds) == shown


@given(st.floats(1e-9, 1e6))
def test_a_shown_duration_is_the_duration(seconds: float) -> None:
    assert seconds_shown(format_seconds(seconds)) == pytest.approx(seconds, rel=0.0085)


@given(st.floats(1e-10, 1e6), st.floats(1e-10, 1e6))
def test_of_two_durations_the_longer_is_never_shown_as_the_shorter(a: float, b: float) -> None:
    short, long = sorted((a, b))
    assert seconds_shown(format_seconds(short)) <= seconds_shown(format_seconds(long)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (2**20 - 100, "1.00 MiB"),
        (2**20 - 2**10, "1023 KiB"),
        (141 * 2**30, "141 GiB"),
        (1.5 * 2**40, "1.50 TiB"),
    ],
)
def test_memory_is_shown_in_binary_units(count: float, shown: str) -> None:
    assert format_bytes(count) == shown


@given(st.integers(0, 2**49), st.integers(0, 2**49))
def test_of_two_sizes_the_larger_is_never_shown_as_the_smaller(a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert bytes_shown(format_bytes(small)) <= bytes_shown(format_bytes(large))
    assert bytes_shown(format_bytes(large)) == pytest.approx(large, rel=0.00501)


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.004, "0.4 %"),
        (0.0094, "0.9 %"),
        (0.00996, "1 %"),
        (0.61, "61 %"),
        (1.0, "100 %"),
        (-0.03, "-3 %"),
    ],
)
def test_a_share_has_a_decimal_only_below_one_percent(fraction: float, shown: str) -> None:
    assert format_percent(fraction) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.034, "1.03x"), (10.84, "10.8x"), (0.519, "0.52x"), (0.0049, "0.005x")]
)
def test_a_factor_is_followed_by_an_x(ratio: float, shown: str) -> None:
    assert format_ratio(ratio) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (0, "$0.00"),
        (4.59, "$4.59"),
        (0.996, "$1.00"),
        (0.5, "$0.50"),
        (0.0999, "$0.10"),
        (0.00999, "$0.010"),
        (0.0031, "$0.0031"),
        (0.000012, "$0.000012"),
        (1234.5, "$1234.50"),
    ],
)
def test_money_is_shown_in_cents_and_below_that_in_two_digits(usd: float, shown: str) -> None:
    assert format_usd(usd) == shown


@given(st.floats(1e-9, 1e6))
def test_money_is_never_shown_with_an_exponent_and_is_the_amount(usd: float) -> None:
    shown = format_usd(usd)
    assert re.fullmatch(r"\$\d+\.\d{2,}", shown)
    assert float(shown[1:]) == pytest.approx(usd, rel=0.0501)


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0.4, "$0.40/h"), (20, "$20.00/h"), (3.59, "$3.59/h"), (0.0042, "$0.0042/h"), (1e-7, "$1e-07/h")],
)
def test_a_price_per_hour_has_cents_and_all_digits_it_was_stated_with(usd: float, shown: str) -> None:
    assert format_hourly(usd) == shown


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.0, "0 %"),
        (1.0004, "0 %"),
        (0.996, "-0.4 %"),
        (1.009, "+0.9 %"),
        (1.02, "+2 %"),
        (0.64, "-36 %"),
        (0.0423, "-95.8 %"),
        (0.00423, "-99.58 %"),
        (1e-9, "-99.99 %"),
        (1.49, "+49 %"),
        (1.5, "1.50x"),
        (2.99, "2.99x"),
        (41.23, "41.2x"),
    ],
)
def test_a_change_of_rate_is_signed_and_a_factor_from_half_as_much_on(ratio: float, expected: str) -> None:
    assert format_change(ratio) == expected


def test_the_ends_of_a_change_take_the_form_of_the_change() -> None:
    assert format_change_interval(0.62, 0.66, 0.64) == "-38 to -34"
    assert format_change_interval(0.9, 2.4, 1.45) == "-10 to +140"
    assert format_change_interval(2.9, 3.4, 3.1) == "2.90 to 3.40"


def test_an_interval_over_two_decades_is_unknown_unless_it_lies_on_one_side() -> None:
    assert format_change_interval(0.004, 12.0, 1.1) == "unknown"
    assert format_change_interval(0.09, 8.9, 1.1) == "-91.0 to +790"
    assert format_change_interval(0.004, 1200.0, 2.0) == "unknown"
    assert format_change_interval(2.0, 1200.0, 50.0) == "2.00 to 1200"


def test_a_rate_beside_a_greater_one_has_its_prefix_where_that_leaves_it_readable() -> None:
    assert format_rate(211e9, "flop", 1.15e12) == "0.211 TFLOP/s"
    assert format_rate(13e9, "B", 1.1e12) == "0.0130 TB/s"
    assert format_rate(1e9, "flop", 1.15e12) == "1.00 GFLOP/s"
    assert format_rate(1.15e12, "flop", 211e9) == "1.15 TFLOP/s"
    assert format_rate(637.0, "img", 1250.0) == "637 img/s"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.98, 1.0201, "±2 %"),
        (0.82, 1.22, "-18 to +22 %"),
        (0.3, 4.0, "-70 to +300 %"),
        (0.2, 50, "-80 to >+900 %"),
        (1e-9, 50, "unknown"),
        (1.0, 1.0, "±0 %"),
    ],
)
def test_a_spread_is_symmetric_only_where_it_prints_so(low: float, high: float, expected: str) -> None:
    assert format_spread(7.0, 7 * low, 7 * high) == expected


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0751, 0.0779, ("75 ms", "78 ms")),
        (0.00462, 0.00966, ("4 ms", "10 ms")),
        (0.0005051, 0.0005056, ("505.0 µs", "505.6 µs")),
        (0.2, 0.2, ("200.0 ms", "200.1 ms")),
        (0.103181, 0.103181, ("103.1 ms", "103.2 ms")),
        (0.9999, 0.9999, ("0.9999 s", "1.0000 s")),
        (2e-9, 9e-9, ("0 ns", "10 ns")),
        (1.0, 11.0, ("0 s", "15 s")),
    ],
)
def test_the_ends_of_an_axis_hold_all_and_differ_as_text(
    low: float, high: float, texts: tuple[str, str]
) -> None:
    first, last, *shown = axis_of_seconds(low, high)
    assert first <= low <= high <= last * (1 + 1e-9)
    assert shown[0] != shown[1]
    assert tuple(shown) == texts
