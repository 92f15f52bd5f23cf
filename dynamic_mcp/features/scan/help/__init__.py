"""Help texts: `--help` and manual pages of all usual forms, read without running anything."""
