# Made from src/ramet/_async/__init__.py by tools/generate.py: change that.
"""The asynchronous half of the package, of which tools/unasync.py makes the synchronous one."""
