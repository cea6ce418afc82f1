"""Keys and values of a store: how rows and messages become them, and their bytes."""
