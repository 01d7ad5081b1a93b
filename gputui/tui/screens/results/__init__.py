"""The Results screen: files, runs, and one run in full."""
