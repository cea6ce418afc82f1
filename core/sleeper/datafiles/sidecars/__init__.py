"""Objects beside a data file: sketches, key filters and checksums."""
