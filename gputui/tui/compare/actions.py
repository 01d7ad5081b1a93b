"""Every key of the Compare screen."""

from __future__ import annotations

from gputui.tui.actions import Action

ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "Evidence", "Open what the verdict of the row under the cursor rests on"),
    Action("back", "escape,backspace", "Back", "Give up what is being read, else leave evidence or text"),
    Action("baseline", "b", "Baseline", "Make the other side the baseline"),
    Action("next-side", "n", "Next side", "Where there are more than two: the next one against the baseline"),
    Action("values", "v", "Values", "Show rates, times of a step, costs, or shares of the peak"),
    Action("differs", "d", "Differences", "What is recorded of both sides and differs, line by line"),
    Action("text", "t", "Text", "What `gputui compare` prints of the same"),
    Action("open-files", "o", "Files", "Compare other files: type them as for `gputui compare`"),
    Action("copy", "y", "Copy", "Copy the table or page that is shown, as text with tabs"),
    Action("reload", "r", "Reload", "Read the files again"),
    Action("down", "j", "Down", "One line down, as the arrow does"),
    Action("up", "k", "Up", "One line up"),
)
