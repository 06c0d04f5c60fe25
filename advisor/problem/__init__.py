"""The problem file: models, loader with line numbers, JSON schema. Imports only `errors`."""
