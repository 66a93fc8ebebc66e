# Made from tests/_async/__init__.py by tools/generate.py: change that.
