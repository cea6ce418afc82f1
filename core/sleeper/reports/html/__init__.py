"""Reports as one HTML page without scripts, which needs no server."""
