"""More processes of the worker's code, on this host (`ranks`) and on others (`multihost`). In: a module
and a count. Out: links to processes that are gone when the worker is.
"""
