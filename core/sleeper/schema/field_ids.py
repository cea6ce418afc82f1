"""The ids of elements of lists, and of keys and values of maps, in data files.

Engines that read files by ids want those of a schema to differ, elements included, and none to be
used again. The id of a field already is so. The ids of its elements follow from it, so they hold
for every table and file without being stored.
"""

_FIRST_ELEMENT_ID = 1_000_000


def element_id(field_id: int) -> int:
    """Returns the id of the elements of the list with this id, or of the keys of the map."""
    return _FIRST_ELEMENT_ID + 2 * field_id


def value_id(field_id: int) -> int:
    """Returns the id of the values of the map with this id."""
    return element_id(field_id) + 1
