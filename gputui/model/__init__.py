"""Values that cross threads, processes and floors: frozen, standard library only, Python 3.10."""
