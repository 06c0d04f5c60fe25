"""The frozen records that rooms hand on. Imports only `machine`, `problem` and `errors`."""
