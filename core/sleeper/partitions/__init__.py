"""Ranges, regions and the partition tree.

A *range* is a half-open interval of one row key field, `[min, max)`, with max None for
no upper end. A *region* has one range per row key field. A *partition* owns a region;
its children's regions cover it without overlap; a partition without children is a
*leaf*. Parsers convert inclusive and exclusive
ends of a request to half-open ranges.
"""
