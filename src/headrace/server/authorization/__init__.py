"""Who may do what: the table of all APIs, and how a request is cut down to what its principal may."""
