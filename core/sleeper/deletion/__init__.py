"""The deletion of rows."""
