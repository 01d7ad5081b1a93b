"""The process that does the work: runs in any Python >= 3.10, imports the standard library, torch and itself.

It is copied into the run directory under the name `gputui_worker`, so every import here is relative.
"""
