"""Property names of gchq/sleeper, read from `gchq_properties.tsv`.

Names that are not declared here are accepted with a warning, so that a configuration can be
brought along unchanged. Each line of the file has who sets the property (an instance's or a
table's user, or the deployment), its name, and its default where that is a literal.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources

SET_BY_DEPLOYMENT = "deployment"


@cache
def gchq_names() -> Mapping[str, str]:
    """Returns who sets each property, by its name."""
    file = resources.files(__package__) / "gchq_properties.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
    return {name: set_by for set_by, name, _ in rows}
