"""The Doctor screen."""
