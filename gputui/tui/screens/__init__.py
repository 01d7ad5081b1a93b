"""One package for each screen, found by its id in `shell/registry.py`. They do not know each other."""
