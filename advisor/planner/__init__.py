"""The search and its nine steps. Imports only rooms below `planner`; never a GPU, a file or a clock."""
