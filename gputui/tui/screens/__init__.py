"""A module for each screen, found by its id in `shell/registry.py`, and what it shows; screens are
independent of each other.
"""
