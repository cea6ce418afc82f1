"""Administration of an instance: tables, holds, properties and user code."""
