"""See `handler`."""
