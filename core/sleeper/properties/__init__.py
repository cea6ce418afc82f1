"""The settings of an instance and of its tables, each declared once.

A *declaration* contains a property's name, kind of value, default, purpose, who sets it, and
whether a change needs a deployment. Property files are Java properties text. `InstanceProperties`
and `TableProperties` parse the text, refuse invalid names and values, and return typed values. A
table property without a value takes the instance's `sleeper.default.table.` property, or else its
default.

Invariants: no other code names a property by a string, and `docs/properties.md` is generated from
the declarations (`python -m sleeper.properties.docs`).
"""
