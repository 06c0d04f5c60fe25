"""Reading, writing and hashing a bundle; the expressions of launch.json. Imports only rooms below `bundle`."""
