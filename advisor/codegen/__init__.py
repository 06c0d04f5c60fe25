"""Plan to sources, through Jinja. Imports only rooms below `codegen`.

templates.py   where text comes from: load, render, headers_for
"""
