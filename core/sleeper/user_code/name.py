"""Names under which user code is registered."""

from dataclasses import dataclass
from enum import Enum

from sleeper.properties.value_kind import CLASS_NAME

NAME_EXPECTED = "a letter, then letters, digits and underscores, at most 100 together"


class CodeKind(Enum):
    """The kind of a registered object; the value is the group of its entry points."""

    ITERATOR = "sleeper.iterators"
    STRATEGY = "sleeper.compaction_strategies"

    @property
    def noun(self) -> str:
        """The readable form, such as `iterator`."""
        return {"ITERATOR": "iterator", "STRATEGY": "compaction strategy"}[self.name]


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A registered name, and the module and attribute of its object."""

    kind: CodeKind
    name: str
    module: str
    attribute: str

    @property
    def place(self) -> str:
        """The value of the entry point."""
        return f"{self.module}:{self.attribute}"


def is_code_name(text: str) -> bool:
    """Returns whether the text is a valid name."""
    return CLASS_NAME.fullmatch(text) is not None


BUILT_IN = (
    EntryPoint(CodeKind.ITERATOR, "AgeOffByField", "sleeper.iterators.builtin", "AgeOffByField"),
    EntryPoint(
        CodeKind.ITERATOR, "LatestBySortKey", "sleeper.iterators.builtin", "LatestBySortKey"
    ),
    EntryPoint(CodeKind.ITERATOR, "RowSecurity", "sleeper.iterators.builtin", "RowSecurity"),
    EntryPoint(CodeKind.ITERATOR, "SumByKey", "sleeper.iterators.builtin", "SumByKey"),
    EntryPoint(
        CodeKind.STRATEGY,
        "BasicCompactionStrategy",
        "sleeper.compaction.strategy",
        "basic_groups",
    ),
    EntryPoint(
        CodeKind.STRATEGY,
        "SizeRatioCompactionStrategy",
        "sleeper.compaction.strategy",
        "size_ratio_groups",
    ),
)
"""What comes with the product. Wheels cannot register these names again."""
