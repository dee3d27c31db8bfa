"""Settings of a command from the environment, for jobs and containers.

click reads them: `--bandwidth` of `fit` is DSHIFT_FIT_BANDWIDTH. What it does not do is to notice a
name that no option has, and a misspelt setting would then be a default in silence.
"""

from __future__ import annotations

import os
from difflib import get_close_matches

import click


class Configured(click.Command):
    """A command that refuses settings that it does not know."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the names of the settings, then parse."""
        prefix = f"{ctx.auto_envvar_prefix}_"
        known = {_setting(parameter, prefix) for parameter in self.params}
        for name in sorted(os.environ):
            if name.startswith(prefix) and name not in known:
                near = get_close_matches(name, known, 1) or [f"{prefix}BANDWIDTH"]
                raise click.UsageError(
                    f"{name}: the environment sets this, and `{ctx.info_name}` has no such option; "
                    f"perhaps {near[0]}? `dshift {ctx.info_name} --help` lists them.",
                    ctx,
                )
        return super().parse_args(ctx, args)


def _setting(parameter: click.Parameter, prefix: str) -> str:
    return str(parameter.envvar or f"{prefix}{parameter.name}".upper())
