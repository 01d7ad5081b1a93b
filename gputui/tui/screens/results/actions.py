"""Every key of the Results screen."""

from __future__ import annotations

from gputui.tui.shell.keymap import Action

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Open", "Open the file, the run, or the blocks of the case under the cursor"),
    Action("back", "escape,backspace", "Back", "Give up what is being read, else one level up"),
    Action("open-path", "o", "Path", "Open a result file by typing its path"),
    Action("filter", "slash", "Filter", "Show the runs or operators that hold a text"),
    Action("sort", "s", "Sort", "Sort by the next column"),
    Action("mark", "space", "Mark", "Mark the run, to compare it; or no longer"),
    Action("compare", "c", "Compare", "Compare the marked runs, the first as the baseline"),
    Action("label", "l", "Label", "Give the run another label"),
    Action("delete", "D", "Delete", "Remove the run from its file for good; asks first"),
    Action("next-tab", "tab", "Next tab", "The next page of the run"),
    Action("previous-tab", "shift+tab", "Tab before", "The page before"),
    Action("next-case", "n", "Next case", "The next case that has such a page; telemetry: the next timed"),
    Action("previous-case", "p", "Case before", "The case before"),
    Action("zoom-in", "plus,equals_sign", "Zoom in", "Telemetry: half as long, around the cursor"),
    Action("zoom-out", "minus", "Zoom out", "Telemetry: twice as long"),
    Action("whole", "0", "Whole", "Telemetry: the whole run"),
    Action("earlier", "left", "Earlier", "Telemetry: the cursor earlier"),
    Action("later", "right", "Later", "Telemetry: the cursor later"),
    Action("move-back", "left_square_bracket", "Move back", "Telemetry: half a picture earlier"),
    Action("move-on", "right_square_bracket", "Move on", "Telemetry: half a picture later"),
    Action("group", "g", "Group", "Operators one by one, by category, or by phase"),
    Action("copy", "y", "Copy", "Copy the table or page that is shown, as text with tabs"),
    Action(
        "save", "e", "Save as", "Save what is shown as .csv or .json, or the run's Chrome trace as .json.gz"
    ),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
