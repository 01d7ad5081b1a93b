"""Widgets and drawing functions for several screens: charts, tables, pages of lines, cutting and wrapping
text to cells; and what they use of the app, as its clipboard."""
