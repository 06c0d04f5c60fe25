"""Plan and evidence to Markdown and terminal. Imports only rooms below `report`."""
