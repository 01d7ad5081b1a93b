"""Every key of the Compare screen."""

from __future__ import annotations

from gputui.tui.shell.keymap import Action

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Evidence", "Open what the verdict of the row under the cursor rests on"),
    Action("back", "escape,backspace", "Back", "Give up what is being read, else leave evidence or text"),
    Action(
        "values", "v", "Values", "Rates, times of a step, costs, energies, or shares of the peak of all sides"
    ),
    Action("values-before", "V", "Values back", "The values before these"),
    Action("baseline", "b", "Baseline", "Make the other side the baseline"),
    Action("next-side", "n", "Next side", "Where there are more than two: look at the next one"),
    Action("side-before", "p", "Side before", "Where there are more than two: look at the one before"),
    Action("by", "g", "Sides", "Choose what tells sides apart: files, device, precision, mode, threads ..."),
    Action("differs", "d", "Differences", "What is recorded of both sides and differs, line by line"),
    Action("text", "t", "Text", "What `gputui compare` prints of the same"),
    Action("command", "c", "Command", "Copy the command line that compares the same"),
    Action("open-files", "o", "Files", "Compare other files: type them as for `gputui compare`"),
    Action("copy", "y", "Copy", "Copy the table or page that is shown, as text with tabs"),
    Action("save", "e", "Save as", "Save the comparison as .md, .csv, .json or .html"),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
