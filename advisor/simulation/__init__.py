"""Tiles on clusters over time. Imports only rooms below `simulation`."""
