"""Architectures, features per exact target, device profiles, how many clusters fit. Imports only `errors`."""
