"""What people ask of an instance's state.

A report gathers from ports into a frozen dataclass, and that turns into a *listing*:
named columns and rows of plain values. A listing is written as text for people or as
JSON lines for programs. A new report writes neither: it only says its columns and rows.
"""
