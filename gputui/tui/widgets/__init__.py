"""Widgets and drawing functions for several screens: charts, tables, pages of lines, dialogs, cutting and
wrapping text to cells."""
