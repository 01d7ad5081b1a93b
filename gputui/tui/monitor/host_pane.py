"""The host: in one row, in three, or in all rows if there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.analysis.health import age
from gputui.model.absent import Missing
from gputui.model.live import DeviceSample
from gputui.model.units import format_usd
from gputui.tui.monitor.accounts import Account
from gputui.tui.monitor.metrics import HOST_METRICS, memory_of, number, percent, rate, word
from gputui.tui.monitor.pane_context import PaneContext, account_text, metric_lines, used_in_short
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, ruled, width_of
from gputui.tui.widgets.charts import heat
from gputui.tui.widgets.wrapping import wrapped

MOST_CHART_ROWS = 3


def host_heading(
    host: DeviceSample, context: PaneContext, width: int, *, brief: bool, cost: str = ""
) -> Line:
    """`─ host ─ cpu 412 % of 24 cores ── mem 61 of 276 GiB ── load 4.4 ─`."""
    values = host.values
    name = clean(word(values, "name")[:256]).strip()
    parts = [Span("host" if brief or not name else f"host {name}", "title")]
    if host.problem is not None:
        parts.append(Span(clean(host.problem.reason), "alarm"))
        return ruled(parts, width)
    age_s = (context.now_ns - host.t_ns) / 1e9
    if age_s >= context.stale_after_s:
        parts.append(Span(f"STALE {age(age_s)}", "warn"))
    if brief:
        limit = number(values, "cpu_limit_cores")
        cores = f" of {limit:g} cores" if limit is not None else ""
        parts.append(Span(f"cpu {percent(number(values, 'cpu_busy_pct'))}{cores}"))
        used, total = number(values, "memory_used_bytes"), number(values, "memory_total_bytes")
        parts.append(Span("mem " + memory_of(used, total, context.units)))
    if cost:
        parts.append(Span(cost))
    load = number(values, "load_1min")
    if load is not None:
        parts.append(Span(f"load {load:.1f}"))
    for label, keys in (
        ("disk", ("disk_read_bytes_per_s", "disk_write_bytes_per_s")),
        ("net", ("network_rx_bytes_per_s", "network_tx_bytes_per_s")),
    ):
        known = [amount for amount in (number(values, key) for key in keys) if amount is not None]
        if known:
            parts.append(Span(f"{label} {rate(sum(known))}", "dim"))
    swap = number(values, "swap_used_bytes")
    if swap:
        parts.append(
            Span("swap " + memory_of(swap, number(values, "swap_total_bytes"), context.units), "warn")
        )
    return ruled(parts, width)


def host_pane(
    context: PaneContext,
    host: DeviceSample,
    accounts: Sequence[Account],
    width: int,
    height: int,
    *,
    panes_show_accounts: bool,
) -> list[Line]:
    """Exactly `height` lines; `accounts` are those of the box's GPUs, summed up if there are several.

    `panes_show_accounts` says whether the pane of each GPU shows its account.
    """
    if height < 1:
        return []
    has_tail = len(accounts) > 1 and height >= 2
    cost = "" if has_tail or panes_show_accounts or not accounts else used_in_short(context, accounts)
    lines = [host_heading(host, context, width, brief=height < 3, cost=cost)]
    room = height - 1
    tail: list[Line] = []
    if has_tail:
        price = context.ledger.usd_per_hour
        text = account_text(context, accounts, len(accounts))
        rate_text = f" · {format_usd(price)}/h" if price is not None else ""
        text += rate_text if width_of(text + rate_text) <= width else ""
        tail = [fitted((Span(text, "dim"),), width)]
        room -= 1
    lines += _rows(context, host, width, room)
    blank = fitted((), width)
    lines += [blank] * (height - len(lines) - len(tail))
    return [*lines, *tail][:height]


def _rows(context: PaneContext, host: DeviceSample, width: int, room: int) -> list[Line]:
    if room <= 0:
        return []
    if room < len(HOST_METRICS):
        columns = 2 if width >= 74 else 1
        each = (width - 2 * (columns - 1)) // columns
        lines = []
        for row in range(room):
            spans: list[Span] = []
            for column, metric in enumerate(HOST_METRICS[row * columns : (row + 1) * columns]):
                here = metric_lines(
                    context, host, metric, each if column < columns - 1 else width - column * (each + 2)
                )
                spans += [*([Span("  ")] if column else []), *here[0]]
            lines.append(fitted(spans, width))
        return lines
    cores = host.values.get("cpu_core_pct")
    core_lines = _cores(cores, width, context) if isinstance(cores, str) else []
    if len(HOST_METRICS) + len(core_lines) > room:
        core_lines = []
    spare = room - len(HOST_METRICS) - len(core_lines)
    lines = []
    for place, metric in enumerate(HOST_METRICS):
        extra = min(-(-spare // (len(HOST_METRICS) - place)), MOST_CHART_ROWS - 1)
        spare -= extra
        lines += metric_lines(context, host, metric, width, 1 + extra)
    return [*lines, *core_lines][:room]


def _cores(text: str, width: int, context: PaneContext) -> list[Line]:
    """One cell for each core."""
    shares: list[float | None] = []
    for part in text.split(",")[:4096]:
        try:
            shares.append(float(part))
        except ValueError:
            shares.append(None)
    drawn = heat(shares, 100.0, ascii_only=context.ascii_only)
    lines = []
    for start in range(0, len(drawn), max(width - 7, 1)):
        label = "cores" if start == 0 else ""
        piece = drawn[start : start + max(width - 7, 1)]
        lines.append(fitted((Span(left(label, 7), "dim"), Span(piece, "chart")), width))
    return lines


def no_gpu_lines(absent: Mapping[str, Missing], width: int, most: int, opening: str) -> list[Line]:
    """Why there is no GPU and what to do about it; `opening` names the screens that need none."""
    if most <= 0:
        return []
    lines = [ruled((Span("no GPU", "warn"), Span("the host is watched")), width)]
    for name, missing in absent.items():
        room = most - len(lines)
        if room <= 0:
            break
        for row in wrapped(clean(f"{name}: {missing.reason}"), width, min(room, 4)):
            lines.append(fitted((Span(row),), width))
    if not absent and len(lines) < most:
        lines.append(fitted((Span("no source of GPU metrics has found one"),), width))
    if opening and len(lines) < most:
        rows = wrapped(f"what works without: {opening}", width, most - len(lines))
        lines += [fitted((Span(row, "accent"),), width) for row in rows]
    return lines
