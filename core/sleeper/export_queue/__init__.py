"""Export queues: data that committed transactions send to other systems.

A queue belongs to a table. Its *exports* are keys with values, under the number of the transaction
that made them. *Capturing* (`capture`) reads exports from the log or the changes of the table, and
stores them by bucket; *draining* (`drain`) gives the exports of buckets to the queue's exporter and
deletes them.
"""
