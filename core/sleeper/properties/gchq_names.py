"""Property names of gchq/sleeper, read from `gchq_properties.tsv`.

Names without a declaration here are accepted with a warning, so that existing configurations
work unchanged. Each line of the file has the party that sets the property (the user of an
instance or of a table, or the deployment), its name, and its default if that is a literal.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources

SET_BY_DEPLOYMENT = "deployment"


@cache
def gchq_names() -> Mapping[str, str]:
    """Returns the party that sets each property, by property name."""
    file = resources.files(__package__) / "gchq_properties.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
    return {name: set_by for set_by, name, _ in rows}
