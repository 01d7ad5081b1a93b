"""Where metrics are read: one file and one name in `registry.SOURCES` each, for measured runs."""
