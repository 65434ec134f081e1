"""Query parameters, each known by name: what is not known is refused, not ignored."""

from typing import Any, Final

from litestar import Request

from app.domain.errors import InvalidRequest, UnknownParameter

_NAME_CHARS_SHOWN: Final = 64


class Query:
    """The parameters of one request's query.

    Raises:
        UnknownParameter: at once, for the first name that is not among ``known``.
    """

    def __init__(self, request: Request[Any, Any, Any], *known: str) -> None:
        self._given = request.query_params
        for name in self._given:
            if name not in known:
                shown = name[:_NAME_CHARS_SHOWN]
                allowed = ", ".join(known) or "none"
                text = f"Unknown parameter: '{shown}'. Known in this query: {allowed}."
                raise UnknownParameter(text, param=shown)

    def all(self, name: str) -> list[str]:
        """Every value, in order."""
        return self._given.getall(name, [])

    def one(self, name: str) -> str | None:
        """The value, if there is one.

        Raises:
            InvalidRequest: there are several, or it is empty.
        """
        values = self.all(name)
        if len(values) > 1:
            raise InvalidRequest(f"'{name}' is given {len(values)} times; send one.", param=name)
        if values and not values[0]:
            raise InvalidRequest(f"'{name}' is empty; leave it out or fill it.", param=name)
        return values[0] if values else None

    def integer(self, name: str, low: int, high: int) -> int | None:
        """The value as a number within these bounds.

        Raises:
            InvalidRequest: it is something else.
        """
        value = self.one(name)
        return None if value is None else integer(value, name, low, high)


def integer(value: str, name: str, low: int, high: int) -> int:
    """The number written in ``value``.

    Raises:
        InvalidRequest: it is no decimal number, or out of these bounds.
    """
    if value.isascii() and value.isdecimal() and len(value) < 20 and low <= int(value) <= high:
        return int(value)
    raise InvalidRequest(
        f"Invalid '{name}': it must be an integer from {low} to {high}.", param=name
    )
