"""Where metrics are read: one file each and, for measured runs, one name in `registry.SOURCES`."""
