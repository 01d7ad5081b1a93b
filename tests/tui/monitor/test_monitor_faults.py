"""The Monitor screen under faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_golden import HANGS, LOST, NOT_HERE, foreign, model, no_gpu, picture
from monitor_samples import HOST, NOT_REPORTED, SECOND, START, process, sample, text_of, with_instances

from gputui.analysis.health import health, is_foreign
from gputui.model.absent import Missing
from gputui.model.telemetry import ENDED, FOREIGN, HIDDEN, DeviceSample, LiveSample, Value
from gputui.tui.monitor.frame import Account, Ledger
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.monitor.status import EndProcess


def device(second: float = 0.0, **changes: Value) -> DeviceSample:
    return sample(1, second, changes={0: {"power_w": 690.0, **changes}}).gpus[0]


def words(gpu: DeviceSample, *, now_ns: int | None = None, account: Account | None = None) -> list[str]:
    findings = health(gpu.t_ns if now_ns is None else now_ns, gpu, (account or Account()).throttling.slowed)
    return [finding.word for finding in findings]


def account_over(seconds: int, **by_second: float) -> Account:
    """An account of a GPU whose counters grow by this many seconds each second."""
    account = Account()
    for second in range(seconds + 1):
        changes = {key: int(share * second * SECOND) for key, share in by_second.items()}
        account.add(device(float(second), **changes))
    return account


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"throttle_bits": 0x4}, ["POWER-CAPPED at 700 W"]),
        ({"throttle_bits": 0x20}, ["THERMAL"]),
        ({"throttle_bits": 0x40}, ["THERMAL"]),
        ({"throttle_bits": 0x48}, ["THERMAL"]),
        ({"throttle_bits": 0x80}, ["POWER BRAKE"]),
        ({"throttle_bits": 0x8}, ["HW SLOWDOWN"]),
        ({"throttle_bits": 0x1}, []),
        ({"throttle_bits": 0x2}, []),
        ({"throttle_bits": 0x24}, ["THERMAL", "POWER-CAPPED at 700 W"]),
        ({"pcie_width": 4, "sm_busy_pct": 0}, ["PCIe x4 of x16"]),
        ({"pcie_generation": 1, "sm_busy_pct": 0}, []),  # an idle link slows down
        ({"pcie_generation": 1, "sm_busy_pct": 95}, ["PCIe gen1 of 5"]),
        ({"pcie_generation": 1, "sm_busy_pct": NOT_REPORTED}, []),
        ({"temperature_c": 81}, []),
        ({"temperature_c": 82}, ["HOT"]),
        ({"temperature_c": 88, "throttle_bits": 0x20}, ["THERMAL"]),
        ({"ecc_uncorrected_count": 3}, ["ECC errors 3"]),
    ],
)
def test_what_ails_a_gpu_is_shown_in_words(changes: dict[str, Value], expected: list[str]) -> None:
    assert words(sample(1, changes={0: {"power_w": 690.0, **changes}}).gpus[0]) == expected


def test_the_share_of_the_last_five_minutes_stands_beside_the_word() -> None:
    account = account_over(900, throttled_power_ns=0.12)
    assert words(device(900.0), account=account) == ["POWER-CAPPED at 700 W, 12 % of 5 min"]
    assert account.throttling.share("thermal") == 0


def test_throttling_that_is_over_is_told_in_the_past_tense() -> None:
    account = Account()
    for second in range(200):
        changes = {"throttled_power_ns": min(second, 100) * SECOND, "throttled_thermal_ns": 0}
        account.add(device(float(second), **changes))
    gpu = device(199.0)
    (finding,) = health(gpu.t_ns, gpu, account.throttling.slowed)
    assert finding.word == "was capped 50 % of 3 min, 90 s ago"
    assert finding.why == "the power limit held the clocks down in that time, but not now"
    assert (finding.severity, finding.style) == ("note", "dim")


def test_throttling_that_is_seen_now_and_then_is_not_told_in_another_tense_each_second() -> None:
    account = Account()
    told = set()
    for second in range(120):
        gpu = device(
            float(second), throttle_bits=0x4 if second % 4 == 0 else 0, throttled_power_ns=NOT_REPORTED
        )
        account.add(gpu)
        told |= {finding.brief for finding in health(gpu.t_ns, gpu, account.throttling.slowed)}
    assert told == {"POWER-CAPPED at 700 W"}


@pytest.mark.parametrize(
    ("changes", "word", "severity"),
    [
        ({"xid_count": 1, "xid_last": 79}, "Xid 79", "alarm"),
        ({"xid_count": 2, "xid_last": 13}, "Xid 13", "note"),
        ({"xid_count": 1, "xid_last": 4242}, "Xid 4242", "warn"),
        ({"xid_count": 0, "xid_last": NOT_REPORTED}, "", ""),
        ({"remapped_rows_count": 3, "remapped_rows_pending": 1}, "ROW REMAP PENDING", "warn"),
        ({"remapped_rows_pending": 1, "remapped_rows_failed": 1}, "ROW REMAP FAILED", "alarm"),
        ({"remapped_rows_count": 3, "remapped_rows_pending": 0, "remapped_rows_failed": 0}, "", ""),
    ],
)
def test_errors_of_the_driver_and_of_the_memory_are_shown(
    changes: dict[str, Value], word: str, severity: str
) -> None:
    gpu = sample(1, changes={0: changes}).gpus[0]
    found = [(one.word, one.severity) for one in health(gpu.t_ns, gpu)]
    assert found == ([(word, severity)] if word else [])


def test_throttling_that_is_long_over_is_no_longer_shown() -> None:
    account = Account()
    for second in range(700):
        account.add(device(float(second), throttled_thermal_ns=min(second, 100) * SECOND))
    assert account.throttling.share("thermal") == 0
    assert words(device(700.0), account=account) == []


def test_without_counters_the_share_is_added_up_from_the_reasons() -> None:
    account = Account()
    for second in range(101):
        bits = 0x4 if second % 4 == 0 else 0
        account.add(device(float(second), throttle_bits=bits, throttled_power_ns=NOT_REPORTED))
    share = account.throttling.share("power")
    assert share is not None
    assert share == pytest.approx(0.25, abs=0.02)


def test_a_counter_that_was_reset_shows_nothing_rather_than_nonsense() -> None:
    account = Account()
    account.add(device(0.0, throttled_power_ns=50 * SECOND))
    account.add(device(1.0, throttled_power_ns=0))
    assert account.throttling.share("power") is None


def test_an_old_reading_shows_its_age_and_a_lost_a_silent_and_a_hung_gpu_are_distinguished() -> None:
    gpu = device()
    assert words(gpu, now_ns=gpu.t_ns + 3 * SECOND) == ["STALE 3 s"]
    assert words(gpu, now_ns=gpu.t_ns + 2 * SECOND) == []
    assert words(replace(gpu, problem=LOST)) == ["LOST"]
    assert words(replace(gpu, problem=HANGS)) == ["NO READING"]
    assert words(replace(gpu, problem=HANGS), now_ns=gpu.t_ns + 7 * SECOND) == ["STALE 7 s"]


def test_processes_of_others_are_counted_and_those_of_the_host_are_not() -> None:
    others = replace(process(1, 1), user="bela")
    hidden = replace(process(2, 1), user=Missing("it belongs to another user, and may not be looked at"))
    mine = replace(process(3, 1), user="ana")
    everyone = (others, hidden, mine, foreign(7, 0))
    assert [is_foreign(one, "ana") for one in everyone] == [True, True, False, False]
    assert not is_foreign(others, "")
    (shared,) = health(device().t_ns, device(), processes=everyone, user="ana")
    assert shared.why == "2 processes of other users on this GPU"
    assert health(device().t_ns, device(), processes=NOT_HERE, user="ana") == ()


def test_energy_is_the_counters_difference_and_power_added_up_where_there_is_none() -> None:
    counted, added = Account(), Account()
    for second in range(11):
        counted.add(device(float(second), energy_mj=1_000_000 + second * 500_000))
        added.add(device(float(second), energy_mj=NOT_REPORTED, power_w=500.0))
    assert counted.energy_j == pytest.approx(5000)
    assert not counted.energy_is_estimate
    assert added.energy_j == pytest.approx(5000)
    assert added.energy_is_estimate


def test_a_sample_seen_twice_and_a_long_gap_add_nothing() -> None:
    account = Account()
    for second in (0, 1, 1, 100, 101):
        account.add(device(float(second), sm_busy_pct=0, energy_mj=second * 1000))
    assert account.idle_ns == 2 * SECOND
    assert account.energy_j == pytest.approx(2)


def test_cost_since_start_and_what_of_it_was_idle() -> None:
    made = MonitorModel(MonitorSettings(), usd_per_hour=4.59)
    for second in range(0, 4200, 10):
        busy = 0 if second < 2460 else 90
        made.add(sample(1, float(second), processes=0, changes={0: {"sm_busy_pct": busy}}))
    text = text_of(made.lines(120, 40, START + 4190 * SECOND))
    assert "used in 69 min: " in text
    assert "$5.34, idle $3.12" in text


def test_the_idle_time_of_several_gpus_is_no_time_on_the_clock() -> None:
    made, nothing = MonitorModel(MonitorSettings()), {device: {"sm_busy_pct": 0} for device in range(2)}
    for second in range(0, 100, 10):
        made.add(sample(2, float(second), processes=0, changes=nothing))
    text = text_of(made.lines(120, 40, START + 90 * SECOND))
    assert "used in 1 min: " in text
    assert ", idle 3 min of GPU time" in text


def test_a_gpu_costs_its_share_of_the_box() -> None:
    ledger = Ledger(8.0)
    assert ledger.cost_usd(3600 * SECOND, 1 / 4) == 2.0
    assert Ledger().cost_usd(3600 * SECOND) is None


def test_without_a_price_there_is_no_money_on_the_screen() -> None:
    made = MonitorModel(MonitorSettings())
    for second in range(100):
        made.add(sample(2, float(second)))
    text = text_of(made.lines(120, 40, START + 99 * SECOND))
    assert "$" not in text
    assert "kJ" in text


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (40, 10)])
def test_a_lost_gpu_keeps_its_place_and_says_why_and_shows_no_old_values(size: tuple[int, int]) -> None:
    made = model(lambda second: sample(3, second, problems={1: LOST} if second > 5 else {}), seconds=10)
    text = picture(made, *size, 10)
    row = next(line for line in text.splitlines() if "LOST" in line)
    assert "1" in row[:104]
    assert size == (40, 10) or "it fell off the" in text
    for device_ in (0, 1, 2):
        assert any(f" {device_} " in line for line in text.splitlines())
    assert " 76 " not in row


def test_all_metrics_unsupported_leaves_charts_with_reasons() -> None:
    nothing = {key: NOT_REPORTED for key in sample(1).gpus[0].values if key != "name"}
    made = model(lambda second: sample(1, second, changes={0: nothing}), seconds=3)
    text = picture(made, 80, 24, 3)
    assert text.count("this GPU does not report it") >= 2
    assert " 0 %" not in text.partition("host")[0]
    made.press("details")
    assert "absent, and why" in picture(made, 80, 24, 3)


def test_values_beyond_their_limits_break_nothing() -> None:
    wild: dict[str, Value] = {
        "sm_busy_pct": 250,
        "memory_total_bytes": 0,
        "power_w": float("nan"),
        "power_limit_w": 0.0,
        "temperature_c": float("inf"),
        "sm_clock_mhz": -5,
        "energy_mj": 2**63,
        "pcie_rx_bytes_per_s": 1e30,
        "name": 7,
    }
    made = model(lambda second: sample(8, second, changes=dict.fromkeys((0, HOST), wild)), seconds=3)
    for size in ((40, 10), (80, 24), (120, 40), (200, 50)):
        picture(made, *size, 3)
    made.press("next-gpu")
    made.press("details")
    text = picture(made, 80, 24, 3)
    assert "250 %" in text


def test_without_a_gpu_the_cause_and_the_cure_are_shown_and_the_host_has_the_room() -> None:
    made = model(no_gpu, seconds=30)
    text = picture(made, 80, 24, 30)
    assert "libnvidia-ml.so.1 was not found" in text
    assert "docker run --gpus all" in text
    assert "cores" in text
    assert "jupyter-lab" in text  # the processes of the host, by what they take of its processor
    assert "GPU-MEM" not in text
    made.press("next-gpu")
    assert "there is no GPU" in picture(made, 80, 24, 30)


def test_processes_that_could_not_be_had_say_why() -> None:
    reason = Missing("no permission to ask the NVIDIA driver")
    made = model(lambda second: replace(sample(2, second), processes=reason), seconds=2)
    assert "no processes: no permission to ask" in picture(made, 80, 24, 2)


def test_a_process_of_the_host_is_labelled_and_cannot_be_ended_from_here() -> None:
    made = model(lambda second: replace(sample(1, second), processes=(foreign(31337, 0),)), seconds=1)
    assert "[PID of the host:" in picture(made, 120, 40, 1)
    made.press("filter")
    made.type("31337")
    made.press("toggle")
    for _ in range(2):  # the answer takes the place of the filter, until the next key
        made.press("down")
        assert "/31337" in picture(made, 120, 40, 1)
        assert made.press("end") is None
        assert "31337 is a number of the host: it cannot be ended from here" in picture(made, 120, 40, 1)
    assert made.press("toggle") is None


@pytest.mark.parametrize("why", [ENDED, FOREIGN, HIDDEN])
def test_a_process_that_ended_or_is_hidden_is_not_taken_for_one_of_the_host(why: Missing) -> None:
    gone = replace(foreign(31337, 0), user=why, command=why, parent_pid=why, start_ticks=why)
    made = model(lambda second: replace(sample(1, second), processes=(gone,)), seconds=1)
    assert f"[{why.reason}]" in picture(made, 200, 50, 1)
    made.press("down")
    assert made.press("end") is None
    assert f"31337 cannot be ended: its start time is not known ({why.reason})" in picture(made, 200, 50, 1)


def ended(asked: object) -> tuple[int, int, str]:
    assert isinstance(asked, EndProcess)
    return asked.pid, asked.start_ticks, asked.signal


def test_ending_asks_and_names_the_start_of_the_process() -> None:
    made = model(lambda second: sample(1, second, processes=3), seconds=1)
    assert made.press("end") is None
    assert "no process is selected" in picture(made, 80, 24, 1)
    made.press("first")
    made.press("end")
    assert "End 4002" in picture(made, 80, 24, 1)
    assert "SIGTERM" in picture(made, 80, 24, 1)
    assert "(asks it to end)?  y yes  n no  up milder  down harsher" in picture(made, 120, 40, 1)
    assert "with SIGTERM?  y yes  n no  up, down" in picture(made, 80, 24, 1)
    for _ in range(9):
        made.press("down")
    assert "SIGKILL" in picture(made, 80, 24, 1)
    made.press("up")
    assert ended(made.press("toggle")) == (4002, 102, "SIGQUIT")
    made.press("end")
    for _ in range(9):
        made.press("up")
    assert "SIGHUP" in picture(made, 80, 24, 1)
    made.press("end")
    made.press("back")
    assert made.press("toggle") is None
    assert made.press("yes") is None
    made.press("end")
    made.press("no")
    assert made.press("yes") is None
    made.press("end")
    assert ended(made.press("yes")) == (4002, 102, "SIGTERM")


def test_hostile_names_do_not_reach_the_lines_raw() -> None:
    evil = "\x1b[31m\x9b2Jx\u202e\n[red]" + "é" * 3000
    made = MonitorModel(MonitorSettings(), title=evil)
    one = sample(2, 0.0, changes={0: {"name": evil}, HOST: {"name": evil}}, absent={evil: Missing(evil)})
    hostile = replace(process(0, 1), command=evil, user=evil)
    made.add(replace(one, processes=(hostile,)))
    for key in ("next-gpu", "details", "details", "down", "end", "back", "filter"):
        made.press(key)
        made.type(evil)
        text = text_of(made.lines(120, 40, START))
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(text)
        assert text.count("\n") == 40


def test_mig_instances_stand_below_their_gpu() -> None:
    made = model(lambda second: with_instances(sample(2, second), 0, 2), seconds=10)
    lines = picture(made, 120, 40, 10).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("   0 2 slices"))
    assert "see below" in lines[first]
    assert [line[:12] for line in lines[first + 1 : first + 3]] == ["├0:0 1g.18gb", "└0:1 1g.18gb"]
    assert lines[first + 1].rstrip().endswith("FULL  SHARED")
    assert lines[first + 2].rstrip().endswith("idle")
    assert " of 16 " in lines[first + 1]
    assert lines[first + 3].startswith("   1 whole")
    assert "2 slices" in lines[1]


def test_the_host_that_was_not_read_says_so() -> None:
    made = model(lambda second: sample(1, second), seconds=1)
    assert "STALE 9 s" in picture(made, 80, 24, 10)
    made.add(
        replace(sample(1, 11.0), host=replace(sample(1, 11.0).host, problem=Missing("/proc is not there")))
    )
    assert "/proc is not there" in picture(made, 80, 24, 11)


@pytest.mark.parametrize("count", [1, 4, 8, 16])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_the_cost_and_its_idle_share_are_shown_in_every_layout(count: int, size: tuple[int, int]) -> None:
    def idle(second: float) -> LiveSample:
        return sample(count, second, processes=40, changes={n: {"sm_busy_pct": 0} for n in range(count)})

    text = picture(model(idle, seconds=90), *size, 90)
    if (count, size) == (16, (80, 24)):  # where rows of GPUs take all the room
        assert "$37/h" in text
    else:
        assert "$0.92" in text or f"${0.918 / count:.2f}" in text
    assert "idle" in text
