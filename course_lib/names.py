"""Which names a piece of source binds, and which it needs from outside."""

import builtins
import symtable
from collections.abc import Iterable, Iterator


def bound_names(source: str) -> set[str]:
    """Returns the names that running `source` binds at module level."""
    table = symtable.symtable(source, "<cell>", "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}


def global_names(source: str) -> set[str]:
    """Returns the global names that `source` uses and does not bind itself, Python's included."""
    top = symtable.symtable(source, "<cell>", "exec")
    used = {
        symbol.get_name()
        for table in _tables(top)
        for symbol in table.get_symbols()
        if symbol.is_referenced() and symbol.is_global()
    }
    return used - bound_names(source)


def undefined_names(source: str, known: Iterable[str]) -> list[str]:
    """Returns the global names `source` uses that neither it, `known` nor Python define."""
    return sorted(global_names(source) - set(known) - set(dir(builtins)))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
