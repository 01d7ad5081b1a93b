"""What `gputui why -- COMMAND` puts into the program that it explains. In: a directory, and how many steps.
Out: a trace of torch.profiler there, and how it went. Its one file is what Python imports as `sitecustomize`;
it imports nothing of gputui, since the program may run in any interpreter.
"""

from __future__ import annotations

DIRECTORY = "GPUTUI_WHY_DIRECTORY"
STEPS = "GPUTUI_WHY_STEPS"
AFTER = "GPUTUI_WHY_AFTER"
"""Variables of the program's environment; a test holds them equal to those of `sitecustomize`."""
