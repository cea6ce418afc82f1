"""Adapters: named pairs of a source and a sink, which run repeatedly (design note 14).

A *source* is a table or query of a SQL database, files, or a table at a version. A *sink* is a
table: into a snapshot table each run is a load, to another table it adds rows. A *run* is a job of
the sink with the id `adapter-<name>:<run id>`, so a repeated run id changes nothing.

definition (names, sources and sinks) → checks (what fails early) → run (rows, one commit).
Invariant: no definition, log line, error or tracker event contains a password.
"""
