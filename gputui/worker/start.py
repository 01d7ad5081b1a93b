"""First file of a deployed worker: puts its own directory on the path, and nothing else."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    runpy.run_module("gputui_worker", run_name="__main__", alter_sys=False)
