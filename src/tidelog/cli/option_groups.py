"""Options that several commands take together: a dataclass of them is one parameter of a command.

    @dataclass(frozen=True)
    class Resources(OptionGroup):          @app.command()
        topic: Topics = None               @with_option_groups
        group: Groups = None               def add(resources: Resources, output: Output = Form.TABLE) -> None: ...

The command line shows the fields in the group's place, in their order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, get_type_hints


@dataclass(frozen=True)
class OptionGroup:
    """Each field of a subclass is an option, annotated as a parameter of a command is, and has a default."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: parameters that are an `OptionGroup` taken apart into their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[OptionGroup]] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, OptionGroup):
            groups[name] = hint
            of_fields = get_type_hints(hint, include_extras=True)
            parameters += [_parameter(each.name, of_fields[each.name], each.default) for each in fields(hint)]
        else:
            parameters.append(_parameter(name, hint, parameter.default))

    @functools.wraps(command)
    def taken_apart(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    taken_apart.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # As inspect documents it.
    taken_apart.__annotations__ = {each.name: each.annotation for each in parameters}
    return taken_apart


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
