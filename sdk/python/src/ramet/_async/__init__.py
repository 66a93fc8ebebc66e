"""The asynchronous half of the package, of which tools/unasync.py makes the synchronous one."""
