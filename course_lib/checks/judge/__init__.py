"""Judge observations: find violations and the known mistake, count points, write the report."""
