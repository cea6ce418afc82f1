"""Adapters of a local instance: ports onto SQLite and files in the instance's folder.

Durable on local disks, safe for several processes at once. Each adapter translates its
library's errors into `sleeper.errors`.
"""
