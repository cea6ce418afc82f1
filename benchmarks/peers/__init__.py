"""Others that do the same work, each a subprocess in a virtual environment of the peers' own.

A module here is a peer: functions for `benchmarks.measuring`, of which each does one job and
says nothing about whether it was done well; that is checked by who asked. Nothing of the
product is imported, since it is not installed there: `environment` makes that place, from
the pins in `requirements.txt`.
"""
