"""`python -m dshift` is `dshift`."""

from dshift.cli import main

main(prog_name="dshift")
