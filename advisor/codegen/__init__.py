"""Plan to sources, through Jinja. Imports only rooms below `codegen`."""
