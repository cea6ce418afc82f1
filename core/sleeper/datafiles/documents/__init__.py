"""Values inside of JSON documents: members, elements and their text, a column at a time."""
