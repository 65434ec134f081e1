"""Names to addresses, for one receiver, without holding up anybody else.

The system's resolver blocks, and a name server that hangs blocks it for half a minute. Pools of
threads are shared (uvloop's has four), so a few such names would hold up all others. Here each
lookup has a thread of its own, and a receiver has one lookup at a time: who asks again meanwhile
waits for the same one.
"""

import asyncio
import socket
import threading
from contextlib import suppress

Found = list[str]


class Resolver:
    """Looks up one name at a time."""

    def __init__(self) -> None:
        self._lookup: asyncio.Future[Found] | None = None

    async def addresses(self, host: str, port: int) -> Found:
        """The addresses of a host, in the system's order.

        Raises:
            OSError: there are none.
        """
        if self._lookup is None:
            self._lookup = self._begin(host, port)
        return await asyncio.shield(self._lookup)

    def _begin(self, host: str, port: int) -> "asyncio.Future[Found]":
        loop = asyncio.get_running_loop()
        lookup: asyncio.Future[Found] = loop.create_future()
        lookup.add_done_callback(self._done)

        def work() -> None:
            found = _look_up(host, port)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, lookup, found)

        # A daemon: one that hangs does not hold up the end of the process.
        threading.Thread(target=work, name=f"lookup {host}", daemon=True).start()
        return lookup

    def _done(self, lookup: "asyncio.Future[Found]") -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # is told to whoever waits; nobody may


def _look_up(host: str, port: int) -> "Found | OSError":
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(f"{host} is no name of a host")
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _settle(lookup: "asyncio.Future[Found]", found: "Found | OSError") -> None:
    if lookup.done():
        return
    if isinstance(found, OSError):
        lookup.set_exception(found)
    else:
        lookup.set_result(found)
