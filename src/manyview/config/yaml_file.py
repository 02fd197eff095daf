"""Settings in YAML files: read strictly, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from manyview.config.config import Config, plain
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.core.errors import UserError
from manyview.core.text import reason


class DuplicateKey(UserError):
    """A key that a file has two values for."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses two values for a key, of which YAML takes the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise DuplicateKey(None, f"{key} is there twice; leave one out")
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """What a YAML file holds, by its outermost keys."""
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)
    except DuplicateKey as error:
        raise error.within(str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(str(path), f"is no YAML: {reason(error)}") from None
    except OSError as error:
        raise UserError(str(path), f"cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise UserError(str(path), f"expected settings such as 'epochs: 100', got {type(found).__name__}")
    return found


def to_yaml(config: Config) -> str:
    """All settings, so that the file alone runs the job again."""
    return str(yaml.safe_dump(plain(config.nested()), sort_keys=False, allow_unicode=True))


def from_yaml(path: str | Path) -> Config:
    return resolve(flat(read_yaml(path)), {})
