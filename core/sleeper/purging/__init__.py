"""The physical removal of deleted rows, and the report on what is gone (design note 13)."""
