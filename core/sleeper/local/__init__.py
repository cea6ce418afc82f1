"""The adapters of a local instance: everything in one folder, on a local disk.

```
instance.db                            table index, queues, trackers: SQLite
instance.properties                    written last, so its presence says that the instance is whole
tables/table-<table id>.properties     with the schema inside
<table id>/state.db                    the table's log and state
<table id>/data/...                    data files and sidecars
```

Several processes use the folder at once. `instance.db` is in WAL mode and fully
synchronised: what a call did is durable when it returns, and each call is one
transaction. A property file is replaced as a whole or not at all.

What must hold: a process may be killed at any line and leave nothing that a person must
clear. Workers are spawned, never forked, because SQLite's locks do not survive a fork.
"""
