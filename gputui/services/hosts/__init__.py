"""Other machines, reached by the user's own ssh or any command that runs a shell there: in come names of
hosts, out go descriptions of them, runs that were started there, and their journals brought home."""
