"""Tables of an instance as tables of Apache Iceberg, for any engine that reads these.

To *publish* a version is to write Iceberg's metadata over the data files of a table: no row is
copied. A published version is a *snapshot* of Iceberg whose id and sequence number are the number
of the version. Its *manifests* name the data files with their key bounds. Rows of a file that the
version does not show are *hidden*: those of other partitions, and deleted ones. A *delete file*
names the positions of the hidden rows of one data file. The *location* is the folder or bucket of
the metadata and the delete files.
"""
