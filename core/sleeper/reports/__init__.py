"""Reports on the state of an instance.

A report reads ports into a frozen dataclass, which turns into a *listing*: named columns and
rows of plain values. `output` writes every listing, as text or as JSON lines, so a new report
only declares its columns and rows.
"""
