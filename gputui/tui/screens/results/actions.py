"""Every key of the Results screen."""

from __future__ import annotations

from gputui.tui.shell.registry import Action

ACTIONS: tuple[Action, ...] = (
    Action(
        "enter", "enter", "Open", "Open the file, run or case: when it was timed, its step, its operators"
    ),
    Action("back", "escape,backspace", "Back", "Cancel reading, or go one level up"),
    Action("open-path", "o", "Path", "Open a result file by typing its path"),
    Action("filter", "slash", "Filter", "Show only runs or operators that contain a text"),
    Action("sort", "s", "Sort", "Sort by the next column"),
    Action("mark", "space", "Mark", "Mark the run for comparison, or unmark it"),
    Action("compare", "c", "Compare", "Compare the marked runs, the first as the baseline"),
    Action("label", "l", "Label", "Rename the run"),
    Action("delete", "D", "Delete", "Remove the run from its file permanently; asks first"),
    Action("next-tab", "tab", "Next tab", "The next page of the run"),
    Action("previous-tab", "shift+tab", "Tab before", "The page before"),
    Action("next-case", "n", "Next case", "The next case that has such a page; timeline: the next launch"),
    Action("previous-case", "p", "Case before", "The case before"),
    Action("zoom-in", "plus,equals_sign", "Zoom in", "Timeline: zoom in around the cursor"),
    Action("zoom-out", "minus", "Zoom out", "Timeline: zoom out"),
    Action("whole", "0", "Whole", "Timeline: the whole run"),
    Action("earlier", "left", "Earlier", "Timeline: move the cursor back"),
    Action("later", "right", "Later", "Timeline: move the cursor forward"),
    Action("move-back", "left_square_bracket", "Move back", "Timeline: scroll back half a page"),
    Action("move-on", "right_square_bracket", "Move on", "Timeline: scroll forward half a page"),
    Action("group", "g", "Group", "Operators one by one, by category, or by phase"),
    Action("copy", "y", "Copy", "Copy the table or page shown, as tab-separated text"),
    Action(
        "save", "e", "Save as", "Save what is shown as .csv or .json, or the run's Chrome trace as .json.gz"
    ),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
