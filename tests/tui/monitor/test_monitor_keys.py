"""Keys, typing and clicks on the Monitor screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_golden import model, picture
from monitor_samples import GIB, SECOND, START, process, sample, text_of, with_instances
from textual.binding import Binding

from gputui.model.absent import Missing
from gputui.model.telemetry import GpuUse
from gputui.tui.app import DOES as DOES_OF_APP
from gputui.tui.app import MonitorApp
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.processes import COLUMNS, ProcessList, columns_for, time_text
from gputui.tui.monitor.settings import OF_GPUS, MonitorSettings
from gputui.tui.monitor.state import DOES
from gputui.tui.monitor.status import ACTIONS
from gputui.tui.shell.on_top import help_lines
from gputui.tui.shell.registry import APP_ACTIONS, SCREENS, SCREENS_ACTIONS, shown_keys


def monitor(gpus: int = 2, processes: int = 12) -> MonitorModel:
    return model(lambda second: sample(gpus, second, processes=processes), seconds=2)


def pids(text: str) -> list[int]:
    rows = [line[:7].replace("▸", " ") for line in text.splitlines() if " ana " in line or " bela " in line]
    return [int(row) for row in rows if row.strip().isdigit()]


def shown(made: MonitorModel, width: int = 120, height: int = 40) -> str:
    return picture(made, width, height, 2)


def selected(made: MonitorModel, width: int = 120, height: int = 40) -> int | None:
    for line in made.lines(width, height, START + 2 * SECOND):
        if line and line[0].style == "selected":
            return int(line[0].text[:7].replace("▸", " "))
    return None


def test_every_action_is_known_to_the_model_and_ids_and_keys_are_unique() -> None:
    made = monitor()
    ids = [action.id for action in ACTIONS]
    keys = [key for action in (*ACTIONS, *APP_ACTIONS) for key in action.key.split(",")]
    assert len(set(ids)) == len(ids)
    assert len(set(keys)) == len(keys)
    assert set(ids) == set(DOES)
    for action in ACTIONS:
        made.press(action.id)
        shown(made)
    assert made.press("no-such-action") is None


def test_the_keys_of_the_app_are_those_that_are_listed() -> None:
    bound = {(binding.action, binding.key) for binding in MonitorApp.BINDINGS if isinstance(binding, Binding)}
    assert bound == {(f"do({action.id!r})", action.key) for action in APP_ACTIONS}
    assert set(DOES_OF_APP) == {action.id for action in (*APP_ACTIONS, *SCREENS_ACTIONS)}


def test_the_last_line_names_only_keys_that_do_something_and_help_says_what_the_others_need() -> None:
    def footer(made: MonitorModel) -> str:
        return " ".join(shown(made).splitlines()[-1].split())

    first = "? Help q Quit space Pause"
    assert footer(monitor(gpus=0, processes=0)) == first
    assert footer(monitor(processes=0)) == f"{first} i Details m Metrics"
    made = monitor()
    assert footer(made) == f"{first} / Filter s Sort i Details m Metrics x End"
    made.press("processes")
    assert footer(made) == f"{first} i Details m Metrics"
    lines = help_lines(ACTIONS, SCREENS, 120)
    text = " ".join("".join(span.text for line in lines for span in line).split())
    assert "why some are absent (needs a GPU)" in text
    assert "Sort the processes by the next column (needs a process)" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_help_lists_every_key_to_the_last(width: int) -> None:
    rows = ["".join(span.text for span in line) for line in help_lines(ACTIONS, SCREENS, width)]
    for action in (*ACTIONS, *APP_ACTIONS):
        assert any(row.startswith(f" {', '.join(shown_keys(action))}  ") for row in rows), action.id


def test_sorting_goes_through_the_columns_and_back_to_the_first() -> None:
    made = monitor()
    shown(made)
    seen = [made.settings.sort]
    for _ in COLUMNS:
        made.press("sort")
        seen.append(made.settings.sort)
    assert set(seen) == {column.id for column in COLUMNS} - {"slice"}  # there is none
    assert seen[0] == seen[-2]


def test_in_a_narrow_terminal_only_columns_in_sight_are_sorted_by_and_the_order_turns_round() -> None:
    made = monitor()
    before = pids(shown(made))
    made.press("reverse")
    after = pids(shown(made))
    assert sorted(before) == sorted(after)
    assert before != after
    assert before[0] == 4003
    shown(made, 40, 10)
    seen = set()
    for _ in range(8):
        made.press("sort")
        seen.add(made.settings.sort)
    assert seen == {column.id for column in columns_for(40)}


def test_what_is_not_known_stands_last_whichever_way_round() -> None:
    unknown = replace(process(1, 1), uses=(GpuUse(0, 4001, "C", Missing("not told"), 1.0),))
    table = ProcessList("gpu-mem", descending=True)
    for descending in (True, False):
        table.descending = descending
        table.take((unknown, process(2, 1), process(3, 1)))
        assert table.rows[-1] is unknown


def test_a_filter_looks_at_user_pid_and_command_in_any_case() -> None:
    made = monitor()
    made.press("filter")
    assert made.is_typing
    made.type("JuP")
    assert pids(shown(made)) == [4009, 4004]
    assert "/JuP_" in shown(made)
    assert "2 of 12 processes" in shown(made)
    made.press("toggle")
    assert not made.is_typing
    assert pids(shown(made)) == [4009, 4004]
    made.press("back")
    assert len(pids(shown(made))) == 12
    made.press("filter")
    made.type("4007")
    assert pids(shown(made)) == [4007]
    made.press("back")
    made.press("filter")
    made.type("bela")
    assert set(pids(shown(made))) == {4000, 4003, 4006, 4009}


def test_backspace_takes_back_a_letter_and_then_leaves_the_filter() -> None:
    made = monitor()
    before = shown(made)
    made.type("zzz")
    assert shown(made) == before, "no filter is open"
    made.press("filter")
    made.type("jux")
    assert "no process matches" in shown(made)
    made.press("erase")
    assert pids(shown(made)) == [4009, 4004]
    made.press("erase")
    made.press("erase")
    assert made.is_typing
    made.press("erase")
    assert not made.is_typing


def test_the_selection_follows_its_process_when_the_order_changes() -> None:
    made = monitor()
    made.press("down")
    assert selected(made) == 4003
    made.press("reverse")
    assert selected(made) == 4003
    made.press("sort")
    assert selected(made) == 4003


def test_the_selection_stays_in_sight_of_a_small_screen() -> None:
    made = monitor(processes=40)
    shown(made, 80, 24)
    made.press("last")
    assert selected(made, 80, 24) == pids(shown(made, 200, 70))[-1]
    made.press("page-up")
    made.press("page-up")
    assert selected(made, 80, 24) is not None
    made.press("first")
    assert selected(made, 80, 24) == pids(shown(made, 200, 70))[0]
    text = shown(made, 80, 24)
    assert "above" not in text


def test_when_the_selected_process_ends_its_neighbour_is_selected() -> None:
    made = monitor(processes=4)
    made.press("down")
    made.press("down")
    first, second = 4003, 4002
    assert selected(made) == second
    one = sample(2, 3.0, processes=4)
    assert not isinstance(one.processes, Missing)
    made.add(replace(one, processes=tuple(p for p in one.processes if p.pid != second)))
    assert selected(made) not in (None, second, first)


def test_a_reused_pid_is_another_process() -> None:
    table = ProcessList("pid", descending=False)
    table.take((process(0, 1), process(1, 1)))
    table.select(0)
    table.take((replace(process(0, 1), start_ticks=999), process(1, 1)))
    assert table.selected == (4000, 999)  # the neighbour in the same place
    table.take((process(1, 1),))
    assert table.selected == (4001, 101)


def test_a_filter_that_hides_the_selected_process_gives_it_back_afterwards() -> None:
    table = ProcessList("pid", descending=False)
    everything = tuple(process(number, 1) for number in range(6))
    table.take(everything)
    table.select(2)
    table.filter = "jupyter"
    table.take(everything)
    assert table.selected_process() is None
    table.filter = ""
    table.take(everything)
    assert table.selected_process() is everything[2]


def test_a_process_on_several_gpus_has_one_row_with_their_sum() -> None:
    uses = tuple(GpuUse(n, 1, "C", GIB, 20.0) for n in range(3))
    spread = replace(process(0, 1), uses=uses)
    partly = replace(
        process(1, 1), uses=(*uses[:1], GpuUse(7, 1, "G", Missing("not told"), Missing("not told")))
    )
    one = sample(8, 0.0)
    made = MonitorModel(MonitorSettings())
    made.add(replace(one, processes=(spread, partly)))
    rows = [line for line in text_of(made.lines(200, 60, START)).splitlines() if line[:7].strip().isdigit()]
    assert "0-2 C      60    3.0 GiB " in rows[0]
    assert "0,7 CG     20   1.0 GiB+ " in rows[1]


def test_columns_give_way_in_a_narrow_terminal_and_the_command_stays() -> None:
    assert [column.id for column in columns_for(40)] == ["pid", "gpu", "gpu-mem", "command"]
    here = [column.id for column in columns_for(80)]
    assert here == ["pid", "user", "gpu", "sm", "gpu-mem", "time", "command"]
    assert len(columns_for(200, ("a GPU", "MIG", "a job"))) == len(COLUMNS)
    assert [column.id for column in columns_for(80, ())] == [
        "pid",
        "user",
        "cpu",
        "host-mem",
        "time",
        "command",
    ]


def on_instances() -> MonitorModel:
    """Of nine processes on three GPUs, 4004 is on instance 0 of GPU 1, 4001 and 4007 are on instance 1."""
    return model(lambda second: with_instances(sample(3, second, processes=9), 1, 2), seconds=2)


def test_processes_on_mig_instances_are_named_and_sorted_by_gpu_and_index() -> None:
    made = on_instances()
    while made.settings.sort != "gpu":
        made.press("sort")
    text = shown(made, 120, 60)
    rows = [line.split()[:5] for line in text.splitlines() if line[:7].strip().isdigit() and "GiB" in line]
    rows = [row for row in rows if len(row[0]) == 4]
    assert [row[2:4] for row in rows] == [
        *[["0", "whole"]] * 3,
        ["1:0", "1g.18gb"],
        *[["1:1", "1g.18gb"]] * 2,
        *[["2", "whole"]] * 3,
    ]
    assert [row[0] for row in rows[3:6]] == ["4004", "4001", "4007"]
    assert "SLICE" in text
    assert "SLICE" in shown(made, 80, 24)
    assert "SLICE" not in shown(monitor())


@pytest.mark.parametrize(
    ("text", "wanted"), [("1:1", [4001, 4007]), ("1G.18", [4001, 4004, 4007]), ("whole", []), ("1:5", [])]
)
def test_the_filter_finds_processes_by_their_mig_instance(text: str, wanted: list[int]) -> None:
    made = on_instances()
    made.press("filter")
    made.type(text)
    assert sorted(pids(shown(made))) == wanted


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "60 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (7200, "2.0 h"),
        (864000, "10.0 d"),
        (-1, "0 s"),
    ],
)
def test_times_of_processes_are_short(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("begins_s", "key", "seconds"),
    [
        (1.0, "faster", [0.5, 0.2, 0.2]),
        (1.0, "slower", [2.0, 5.0, 10.0, 10.0]),
        (3.0, "slower", [5.0]),
        (3.0, "faster", [2.0]),
    ],
)
def test_intervals_go_to_the_next_of_the_list_and_stop_at_the_ends(
    begins_s: float, key: str, seconds: list[float]
) -> None:
    made = MonitorModel(MonitorSettings(interval_s=begins_s))
    for interval_s in seconds:
        made.press(key)
        assert made.settings.interval_s == interval_s
    assert f"every {seconds[-1]:g} s" in text_of(made.lines(80, 24, START))


def test_hiding_processes_gives_their_room_away_and_stops_asking_for_them() -> None:
    made = monitor()
    made.press("processes")
    assert not made.settings.show_processes
    assert "COMMAND" not in shown(made)
    made.press("filter")
    assert not made.is_typing
    assert "p shows them" in shown(made)
    made.press("processes")
    assert made.settings.show_processes
    assert "COMMAND" in shown(made)


def test_zoom_goes_from_a_minute_to_an_hour() -> None:
    made = monitor()
    for _ in range(9):
        made.press("zoom-out")
    assert made.settings.zoom_min == 60
    assert "charts 10 s" in shown(made)
    assert "charts grow as readings come in, up to 60 min" in shown(made)
    for _ in range(9):
        made.press("zoom-in")
    assert made.settings.zoom_min == 1


def test_metrics_can_be_chosen_and_one_always_stays() -> None:
    made = monitor()
    made.press("metrics")
    assert "[x] busy" in shown(made)
    made.press("toggle")
    assert "[ ] busy" in shown(made)
    for _ in OF_GPUS:
        made.press("down")
    made.press("toggle")
    assert made.settings.metrics[-1] == OF_GPUS[-1].id
    made.press("back")
    assert "busy  " not in shown(made).partition("GPU 0")[2]
    made = MonitorModel(MonitorSettings(metrics=("memory",)))
    made.add(sample(1))
    for key in ("metrics", "down", "toggle"):
        made.press(key)
    assert made.settings.metrics == ("memory",)
    assert "one metric stays" in text_of(made.lines(80, 24, START))


def test_the_selected_gpu_is_marked_and_its_findings_leave_the_keys_in_sight() -> None:
    made = monitor(gpus=8)
    for _ in range(4):
        made.press("next-gpu")
    text = shown(made, 80, 24)
    assert any(line.startswith("▸ 3 ") for line in text.splitlines())
    assert "GPU 3 ── POWER-CAPPED at 700 W: the power" in text
    assert text.splitlines()[-1].startswith("? Help  q Quit")
    assert "GPU 3 ── POWER-CAPPED at 700 W" in shown(made, 120, 40)


def test_rows_that_scroll_follow_the_selected_gpu() -> None:
    made = monitor(gpus=72)
    for _ in range(60):
        made.press("next-gpu")
    text = shown(made, 80, 24)
    assert any(line.startswith("▸59 ") for line in text.splitlines())
    assert "58 GPUs out of sight" in text


def test_clicks_select_gpus_and_processes_and_sort_by_columns() -> None:
    made = monitor(gpus=8)
    text = shown(made, 80, 24).splitlines()
    row = next(n for n, line in enumerate(text) if line.startswith("  5 "))
    made.click(20, row)
    assert any(line.startswith("▸ 5 ") for line in shown(made, 80, 24).splitlines())
    heading = next(n for n, line in enumerate(text) if "COMMAND" in line)
    made.click(text[heading].index("USER"), heading)
    assert made.settings.sort == "user"
    made.click(text[heading].index("USER"), heading)
    assert made.settings.descending
    made.click(30, heading + 2)
    assert selected(made, 80, 24) == pids(shown(made, 80, 24))[1]
    made.click(0, 0)
    made.click(79, 23)
    made.click(500, 500)


def test_clicks_on_cards_select_gpus() -> None:
    made = monitor(gpus=4)
    shown(made, 200, 50)
    made.click(60, 5)
    assert "─ ▸1 ─" in shown(made, 200, 50)


def test_a_click_in_the_metrics_switches_one() -> None:
    made = monitor()
    made.press("metrics")
    text = shown(made).splitlines()
    row = next(n for n, line in enumerate(text) if "] sm " in line)
    made.click(3, row)
    assert "sm" in made.settings.metrics


def test_details_scroll_and_leave() -> None:
    made = monitor(gpus=1)
    made.press("details")
    text = shown(made, 80, 24)
    assert "uuid" in text
    assert "more lines" in text
    made.press("last")
    text = shown(made, 80, 24)
    assert "absent, and why" in text
    assert "this GPU does not report it: fan" in text
    made.press("back")
    assert "details" not in shown(made, 80, 24).splitlines()[1]


def test_a_sentence_from_outside_stands_in_the_last_line_until_the_next_key() -> None:
    made = monitor()
    made.say("4000 has ended")
    assert "4000 has ended" in shown(made).splitlines()[-1]
    made.press("down")
    assert "4000 has ended" not in shown(made)


def test_enter_opens_the_selected_gpu() -> None:
    made = monitor(gpus=2)
    made.press("toggle")
    assert "details" not in shown(made)
    made.press("next-gpu")
    made.press("next-gpu")
    made.press("toggle")
    assert "1 H200 SXM ── details" in shown(made)


def test_details_of_a_gpu_list_its_instances() -> None:
    made = model(lambda second: with_instances(sample(2, second), 0, 3), seconds=2)
    made.press("details")
    made.press("last")
    made.press("first")
    picture = shown(made, 120, 100)
    for number in range(3):
        assert f"─ 0:{number} 1g.18gb ── MIG instance ─" in picture
    assert picture.count("NVIDIA H200 MIG 1g.18gb") == 3
    assert "the driver does not tell it of a MIG instance: busy" in picture
