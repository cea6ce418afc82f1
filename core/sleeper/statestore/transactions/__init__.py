"""Every kind of change that a table can undergo, one small frozen dataclass each.

A transaction validates itself against the fold as left by those before it (apply,
already done, or refused because), applies itself by SQL, and goes to and from JSON.
`codec` knows all kinds. What must hold: `apply` depends on nothing but the transaction
and the fold, and never raises after `validate` said apply.
"""
