"""Every setting as a page of Markdown, written from the settings themselves."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from app.settings import DEFAULT_MODEL, Settings
from app.settings_keys import Key, keys

HEAD = """\
# Settings

One TOML file, read from `--config`, else `MLXQ_CONFIG`, else `mlxq/config.toml` in the user's
configuration folder. A flag wins over the environment, that over the file, that over the default.
`mlxq serve --set section.key=value` sets any key; the variable of `server.port` is
`MLXQ_SERVER_PORT`, and so on. Lists in variables and flags are separated by commas. Unknown keys,
unknown `MLXQ_` variables, wrong types and values out of range stop the start with the key, the
place and the cure. `mlxq config show` prints every value and where it came from.

```toml
[server]
port = 8000

[models]
default = "{model}"
```

This page is the output of `mlxq config reference`.
"""

_PLACES = {
    "storage.data_dir": "the user's data folder",
    "storage.cache_dir": "the user's cache folder",
    "models.hub_cache": "the hub's own",
}


def settings_markdown() -> str:
    """The page `docs/settings.md`; the same on every machine."""
    out = [HEAD.format(model=DEFAULT_MODEL)]
    section = ""
    for key in keys():
        if key.section != section:
            section = key.section
            out.append(f"\n## {section}\n\n{_about(section)}\n\n")
            out.append("| key | default | may be | what for |\n|---|---|---|---|\n")
        out.append(f"| `{key.full}` | {_default(key)} | {_range(key)} | {key.description} |\n")
    return "".join(out)


def _about(section: str) -> str:
    item = next(item for item in msgspec.structs.fields(Settings) if item.name == section)
    return str(item.type.__doc__)


def _default(key: Key) -> str:
    if key.full in _PLACES:
        return _PLACES[key.full]
    value: object = getattr(getattr(Settings(), key.section), key.name)
    text = f"{value:g}" if isinstance(value, float) and value < 1e5 else str(value)
    return f"`{text.removesuffix('.0')}`" if text else "empty"


def _range(key: Key) -> str:
    kind: Any = get_args(key.type)[0]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    meta: Any = key.type.__metadata__[0]
    if meta.le is not None:
        least = f"over {meta.gt:g}" if meta.gt is not None else f"{meta.ge}"
        return f"{least} to {meta.le}"
    if kind is Path:
        return "a path"
    return "a list of names" if get_origin(kind) is list else "text"
