"""The tables of an instance: their ids and names, and the table index.

A table has an id, which never changes and which its objects' paths begin with, and a
name, which people use and which can be changed. The index is the only word on which
tables exist: creating a table writes its state and properties first and its index row
last, and deleting one marks the row as *deleting*, which frees the name at once, while
collection removes the objects and at the end the row.

What must hold: two active tables never share a name; an id is never given twice; a
change that another writer made in between is never overwritten.
"""
