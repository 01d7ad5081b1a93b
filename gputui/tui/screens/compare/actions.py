"""Every key of the Compare screen."""

from __future__ import annotations

from gputui.tui.shell.registry import Action

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Evidence", "Show the evidence for the verdict of the selected row"),
    Action("back", "escape,backspace", "Back", "Cancel reading, or leave the evidence or text"),
    Action(
        "values", "v", "Values", "Rates, times of a step, costs, energies, or shares of the peak of all sides"
    ),
    Action("values-before", "V", "Values back", "The previous values"),
    Action("baseline", "b", "Baseline", "Make the other side the baseline"),
    Action("next-side", "n", "Next side", "With more than two sides: show the next one"),
    Action("side-before", "p", "Side before", "With more than two sides: show the previous one"),
    Action(
        "by", "g", "Sides", "Choose what separates the sides: files, device, precision, mode, threads ..."
    ),
    Action("differs", "d", "Differences", "Recorded differences between the sides, line by line"),
    Action("text", "t", "Text", "The output of `gputui compare` for this comparison"),
    Action("command", "c", "Command", "Copy the equivalent command line"),
    Action("open-files", "o", "Files", "Compare other files: type them as for `gputui compare`"),
    Action("copy", "y", "Copy", "Copy the table or page shown, as tab-separated text"),
    Action("save", "e", "Save as", "Save the comparison as .md, .csv, .json or .html"),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
