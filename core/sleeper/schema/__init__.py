"""The shape of a table's rows: row key, sort key and value fields with their types.

Field order everywhere is row keys, sort keys, values. Key fields are never null and
are of a type that has one order on every engine: numbers by value, strings by their
UTF-8 bytes, byte arrays as unsigned bytes. This package knows nothing of Arrow, so
that control-plane code can use it; `sleeper.datafiles.arrow` has the mapping.
"""
