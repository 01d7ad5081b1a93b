"""First file of a deployed worker: puts its own directory on the path, and nothing else."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from gputui_worker.__main__ import main

    sys.exit(main(sys.argv[1:]))
