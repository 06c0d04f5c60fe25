"""One package per kind of work, behind the `Workload` protocol. Imports only rooms below `kinds`."""
