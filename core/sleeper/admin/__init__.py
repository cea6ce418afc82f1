"""Administration of an instance: tables, properties, holds and users' code."""
