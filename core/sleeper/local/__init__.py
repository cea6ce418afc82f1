"""The implementations of the ports of a local instance: everything in one folder, on a local disk.

```
instance.db                            table index, queues, trackers: SQLite
instance.properties                    written last, so an instance that has it is complete
tables/table-<table id>.properties     the table's properties and schema
holds.db                               holds of reads: SQLite
reader-holds/holds.db                  those of readers who may write only in this folder
<table id>/state.db                    the table's log and state
<table id>/state.db.lock               locked by the process that commits
<table id>/data/...                    data files and sidecars
```

Several processes can use the folder at once. `instance.db` is in WAL mode with full
synchronisation: each call is one transaction, which is durable when the call returns. A property
file is replaced atomically.

A process that is killed at any line leaves nothing that a person must clean up. Workers are
spawned, never forked, because SQLite's locks do not survive a fork.
"""
