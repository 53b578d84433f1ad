"""What the five trainers share: storage, layout, checkpoints, words."""
