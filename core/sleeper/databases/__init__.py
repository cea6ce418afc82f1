"""SQL databases: their URLs, columns and errors, and connections to PostgreSQL.

Adapters read databases, and exporters write to them.
"""
