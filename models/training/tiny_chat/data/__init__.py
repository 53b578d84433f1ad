"""The generator of tiny-chat: one file per family of tasks, all mixed in mix.py."""
