"""SQL databases: their URLs, columns and errors, and connections to PostgreSQL.

Systems read databases, and write to them.
"""
