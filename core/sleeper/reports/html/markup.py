"""HTML elements. Text is escaped, unless it is markup already."""

from html import escape


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def element(
    tag: str, attributes: dict[str, str | float | None] | None = None, *children: str
) -> Markup:
    """Returns an element with its children. Attributes that are None are omitted."""
    given = {name: v for name, v in (attributes or {}).items() if v is not None}
    shown = "".join(f' {name}="{escape(_format(value))}"' for name, value in given.items())
    return Markup(f"<{tag}{shown}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    """Returns the children one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c, quote=False) for c in children))


def _format(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
