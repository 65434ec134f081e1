"""Places for durable work, which must be in order whenever a test leaves them."""

from collections.abc import Iterator

import pytest

from tests.durable.place import Place
from tests.e2e.server import Site
