"""Every kind of change of a table, one small frozen dataclass each.

A transaction validates itself against the fold as left by those before it (apply,
already done, or refused because), applies itself by SQL, and has a JSON form.
`codec` lists all kinds. Invariants: `apply` depends on the transaction and the fold alone, and
never raises after `validate` returned APPLY.
"""
