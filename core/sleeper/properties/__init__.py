"""The settings of an instance and of its tables, each declared once.

A *declaration* says a property's name, kind of value, default, what it is for, who sets
it and whether a change needs a new deployment. Property files are Java properties text;
text becomes an `InstanceProperties` or `TableProperties`, which refuses names and values
that cannot be, and gives typed values for declarations. A table's property that is not
set takes the instance's `sleeper.default.table.` property, and that its own default.

What must hold: nothing else in the product names a property by a string; the page
`docs/properties.md` is generated from the declarations (`python -m sleeper.properties.docs`).
"""
