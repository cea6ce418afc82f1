"""Export queues: data that committed transactions send to other systems.

A queue belongs to a table. Its *exports* are keys with values, under the number of the transaction
that made them. *Taking up* (`take_up`) reads exports from the log or the changes of the table,
and stores them by bucket; *draining* (`drain`) gives a bucket's exports to the queue's exporter and
deletes them.
"""
