"""`python -m gputui`."""

from gputui.cli import main

if __name__ == "__main__":
    main()
