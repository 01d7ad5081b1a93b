"""Regenerates all committed files that tests compare with:

    python tests/makers/goldens.py

It takes about a minute. Then review each difference: git diff.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gputui.store.describe import page

REPOSITORY = Path(__file__).parents[2]
MAKERS = (
    "tests/makers/demo_trace.py",
    "tests/makers/comparison_forms.py",
    "tests/makers/json_schemas.py",
    "tests/makers/monitor_golden.py",
    "tests/makers/run_screen_golden.py",
    "tests/makers/screen_goldens.py",
    "screenshots/make.py",
)

if __name__ == "__main__":
    (REPOSITORY / "docs" / "result-file.md").write_text(page(), encoding="utf-8")
    for maker in MAKERS:
        subprocess.run([sys.executable, maker], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
