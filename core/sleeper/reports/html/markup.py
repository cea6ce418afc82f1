"""HTML elements. Text is escaped, unless it is markup already."""

from html import escape

from sleeper.query.printable import printable


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def element(
    tag: str, attributes: dict[str, str | float | None] | None = None, *children: str
) -> Markup:
    """Returns an element with its children. Attributes that are None are omitted."""
    given = {name: v for name, v in (attributes or {}).items() if v is not None}
    shown = "".join(f' {name}="{_escape(_format(value))}"' for name, value in given.items())
    return Markup(f"<{tag}{shown}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    """Returns the children one after the other."""
    return Markup(
        "".join(c if isinstance(c, Markup) else _escape(c, quote=False) for c in children)
    )


def _format(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _escape(text: str, quote: bool = True) -> str:
    """Escapes markup, and characters that neither HTML nor XML can contain."""
    for character in "\ufffe\uffff":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return escape(printable(text), quote)
