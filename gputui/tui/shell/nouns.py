"""What the palette finds besides keys: profiles, runs of the open file, result files, pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from gputui.errors import GputuiError
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.results.browser import recent_files
from gputui.services.results.labels import day
from gputui.services.support.documentation import text_of, topics
from gputui.services.support.paths import default_result_file
from gputui.store.reading import open_result
from gputui.tui.shell.palette import Choice
from gputui.tui.shell.registry import Action


def nouns(
    db: Path | None, open_screen: Callable[[str, tuple[str, ...]], None], open_page: Callable[[str], None]
) -> Iterator[Choice]:
    """All of them, with the runs of the file `db`, or of the one that changed last; reads files.

    `open_screen` takes the id of a screen and its arguments, `open_page` the text of a page.
    """
    for profile in shipped_profiles():
        action = Action("", "", f"run {profile.name}", f"Measure with this profile. {profile.question}")
        yield action, partial(open_screen, "run", (profile.name,))
    files = recent_files(Path())
    db = db or next((entry.path for entry in files), default_result_file())
    with suppress(GputuiError), open_result(db) as file:  # such a file is listed, and says why when opened
        for run in file.summaries():
            words = " ".join(filter(None, (run.short_id, run.profile, run.label)))
            action = Action("", "", f"run {words}", f"Its results: {day(run)}, {run.status}, in {db}")
            yield action, partial(open_screen, "results", (f"{db}@{run.run_id}",))
    for entry in files:
        action = Action("", "", f"file {entry.path.name}", f"The runs of {entry.path}")
        yield action, partial(open_screen, "results", (str(entry.path),))
    for name, page in topics().items():
        text = text_of(page)
        titles = [line.lstrip("# ") for line in text.splitlines() if line.startswith(("# ", "## "))]
        yield Action("", "", f"docs {name}", "; ".join(titles)), partial(open_page, text)
