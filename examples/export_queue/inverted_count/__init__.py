"""Entities with counts in a Sleeper table, and an index from counts to entities in PostgreSQL.

`entities` updates counts in transactions that export the old and the new count. `count_index` is
the exporter that writes the index. The index of committed counts is exact, although transactions
conflict, exporters die, and exports arrive twice and out of order.
"""
