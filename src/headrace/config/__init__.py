"""The table of all settings, and what one broker and one topic make of it."""
