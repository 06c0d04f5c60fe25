"""The only home of a live GPU. Imports only rooms below `runtime`, without `toolchain`."""
