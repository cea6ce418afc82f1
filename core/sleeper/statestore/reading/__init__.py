"""SQL queries of one version of a table's state.

Each module holds the queries of one area; `table_state.TableState` puts them together
over one SQLite read transaction. Every query is a predicate on the numbers that added
and removed a thing, so the newest version and an old one are read by the same text.
"""
