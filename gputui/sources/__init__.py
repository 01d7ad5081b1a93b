"""Where metrics are read: one file for each kind of device."""
