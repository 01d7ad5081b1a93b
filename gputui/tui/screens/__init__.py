"""One package for each screen, found by its id in `shell/registry.py`; they are independent of each other."""
