"""The checks: one function per rule, which raises `Violation` with the rule that is broken."""
